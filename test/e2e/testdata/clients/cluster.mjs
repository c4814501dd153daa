// Asks Headgate as programs do whose clients are in cluster mode, and prints for each client what
// four calls of CL.THROTTLE and two of HG.CHECK were answered. The port and the token are arguments.
const [port, password] = process.argv.slice(2);
const node = { host: '127.0.0.1', port: Number(port) };

async function ask(name, call) {
  const throttled = [];
  for (let i = 0; i < 4; i++) throttled.push((await call('CL.THROTTLE', name, '2', '1', '3600'))[0]);
  const allowed = async (...args) => {
    const reply = await call('HG.CHECK', 'mail', name, ...args);
    return Number(Array.isArray(reply) ? reply[1] : reply.allowed);
  };
  console.log(name, throttled.join(''), await allowed('COST', '5'), await allowed());
}

for (const module of ['ioredis5', 'ioredis']) {
  const { Cluster } = await import(module);
  const cluster = new Cluster([node], { redisOptions: { password } });
  await ask(module, (...args) => cluster.call(...args));
  const pipeline = cluster.pipeline();
  for (const key of ['a', 'b', 'c']) pipeline.call('CL.THROTTLE', module + key, 2, 1, 3600);
  console.log(module, (await pipeline.exec()).map(([err, reply]) => err ?? reply[0]).join(''));
  await cluster.quit();
}
for (const module of ['redis5', 'redis']) {
  const { createCluster } = await import(module);
  for (const RESP of [2, 3]) {
    const cluster = createCluster({ rootNodes: [{ socket: node }], defaults: { password }, RESP });
    await cluster.connect();
    await ask(`${module}-${RESP}`, (...args) => cluster.sendCommand(args[1], false, args));
    cluster.destroy();
  }
}
