// A TCP link in a process of its own, with a delay each way and a rate towards its client:
// node slow-link.mjs TARGET_PORT DELAY_MS MEGABYTES_PER_SECOND. It prints the port that it listens
// on.
import { connect, createServer } from "node:net";
import process from "node:process";

const [port, delayMs, megabytes] = process.argv.slice(2).map(Number);
const bytesPerMs = megabytes * 1e3;

/** Forwards data in order with the delay and the rate. */
function pass(from, to, isPaced) {
  const queue = [];
  let freeAtMs = 0;
  let late = 0;
  let isRunning = false;
  const run = () => {
    isRunning = false;
    while (queue.length > 0 && queue[0].atMs <= performance.now()) {
      const { bytes } = queue.shift();
      if (bytes) to.write(bytes);
      else to.end();
      late -= bytes?.length ?? 0;
    }
    // Back-pressure: the sender is resumed when little data is pending.
    if (late <= 4e6) from.resume();
    if (queue.length > 0) wait();
  };
  const wait = () => {
    if (!isRunning) setTimeout(run, Math.max(0, queue[0].atMs - performance.now()));
    isRunning = true;
  };
  const put = (bytes) => {
    const length = bytes?.length ?? 0;
    freeAtMs = Math.max(freeAtMs, performance.now()) + (isPaced ? length / bytesPerMs : 0);
    late += length;
    if (late > 4e6) from.pause();
    queue.push({ atMs: freeAtMs + delayMs, bytes });
    wait();
  };
  from.on("data", put);
  from.on("end", () => put(undefined));
  from.on("error", () => to.destroy());
}

const server = createServer((near) => {
  const far = connect({ host: "127.0.0.1", port, noDelay: true });
  near.setNoDelay(true);
  pass(near, far, false);
  pass(far, near, true);
});
server.listen(0, "127.0.0.1", () => console.log(`listens on ${server.address().port}`));
