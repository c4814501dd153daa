// Asks Headgate as a program with ioredis does, and prints what it was answered.
// The port, the token and the module are arguments.
const [port, password, module] = process.argv.slice(2);
const { default: Redis } = await import(module);
const redis = new Redis({ port: Number(port), password, connectionName: "asks", db: 0, lazyConnect: true });
redis.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

// object makes an object of the names and values of an answer.
const object = (flat) => Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]));
const check = async (...args) => object(await redis.call("HG.CHECK", ...args));

await redis.connect();
const verdicts = await Promise.all(Array.from({ length: 8 }, () => check("mail", "user42")));
const denied = verdicts[7];
const pipeline = redis.pipeline();
for (let i = 0; i < 4; i++) pipeline.call("CL.THROTTLE", "user42", 2, 1, 3600);
const throttled = (await pipeline.exec()).map(([error, reply]) => (error ? error.message : reply));
let failure = "none";
try {
  await redis.call("HG.CHECK", "nobody", "user42");
} catch (error) {
  failure = `${error.name}: ${error.message}`;
}
console.log(
  JSON.stringify({
    status: redis.status,
    allowed: verdicts.map((v) => v.allowed),
    deniedBy: object(denied.denied_by),
    remaining: object(denied.decisions[0]).remaining,
    throttled,
    failure,
    name: await redis.client("GETNAME"),
  }),
);
await redis.quit();
