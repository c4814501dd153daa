'use strict';

// UNMATCHED is the route of requests that no route serves, all of them together: a
// client cannot make up names.
const UNMATCHED = 'unmatched';

/**
 * The route that serves a request for a path, as "GET /items/:id": the one that Express
 * has found if the middleware stands on it, or else the one that it will find.
 */
function routeOf(req, path) {
  const { app, route, method } = req;
  const fold = foldOf(app);
  if (route) {
    return nameOf(method, fold(req.baseUrl), route);
  }
  // What is mounted where is known of an outermost app only. Express 4 has its
  // router under another name.
  const router = app && !app.parent && (app._router || app.router);
  const found = router && find(method, router.stack, path, '', fold);
  return found || UNMATCHED;
}

// find goes through the layers as Express will, up to the first route.
function find(method, stack, path, base, fold) {
  for (const layer of stack || []) {
    const mounted = match(layer, path);
    if (mounted === undefined) {
      continue;
    }
    if (layer.route) {
      if (serves(layer.route, method)) {
        return nameOf(method, base, layer.route);
      }
      continue;
    }
    const inner = layer.handle && layer.handle.stack;
    if (inner) {
      const rest = path.slice(mounted.length);
      const found = find(method, inner, rest.startsWith('/') ? rest : '/' + rest, base + fold(mounted), fold);
      if (found) {
        return found;
      }
    }
  }
  return undefined;
}

// match returns the part of the path that the layer matches, or undefined. The newest
// Express returns what it has found, and those before note it in the layer.
function match(layer, path) {
  let found;
  try {
    found = layer.match(path);
  } catch {
    return undefined; // an escape that is none: Express answers with 400
  }
  if (!found) {
    return undefined;
  }
  return (typeof found === 'object' ? found.path : layer.path || '').replace(/\/$/, '');
}

function serves(route, method) {
  const methods = route.methods || {};
  const name = method.toLowerCase();
  return Boolean(methods._all || methods[name] || (name === 'head' && methods.get));
}

// nameOf is a route's name. HEAD is GET where the route for that serves it.
function nameOf(asked, base, route) {
  const methods = route.methods || {};
  const method = asked === 'HEAD' && !methods.head && methods.get ? 'GET' : asked;
  const path = String(route.path);
  return `${method} ${path === '/' && base ? base : base + path}`;
}

// foldOf brings mount paths, of which only what the client wrote is known, to one
// form.
function foldOf(app) {
  const exact = app && app.enabled('case sensitive routing');
  return (text) => (exact ? text || '' : (text || '').toLowerCase());
}

module.exports = { routeOf, UNMATCHED };
