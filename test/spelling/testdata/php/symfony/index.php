<?php
// The front controller of an application with Symfony's request and router.
require_once 'Symfony/Component/HttpFoundation/autoload.php';
require_once 'Symfony/Component/Routing/autoload.php';

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Routing\Matcher\UrlMatcher;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;

$routes = new RouteCollection();
foreach (['token' => '/v1/token', 'admin' => '/admin/{rest}', 'other' => '/{rest}'] as $name => $path) {
    $routes->add($name, new Route($path, [], ['rest' => '.*']));
}
$request = Request::createFromGlobals();
$context = (new RequestContext())->fromRequest($request);
try {
    echo (new UrlMatcher($routes, $context))->match($request->getPathInfo())['_route'];
} catch (Exception $e) {
    http_response_code(404);
}
