// `npm start`: sets up what a fresh clone lacks, then runs `heddle up` with the given arguments.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { join } from "node:path";
import { ROOT, setUp } from "./setup.mjs";

const { node, env } = setUp();
const args = [join(ROOT, "apps/cli/dist/main.js"), "up", ...process.argv.slice(2)];
const child = spawn(node, args, { stdio: "inherit", env });

// `heddle up` ends its processes in order; this one only passes signals on and waits. A Ctrl-C
// reaches the child twice (from the terminal and from here), which it counts as one.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => {
    // Of a whole group that is told to end, npm's shell is gone as well: that would be a second signal.
    clearInterval(looking);
    child.kill(signal);
  });
}
// npm passes a SIGTERM to its shell alone, which dies of it and leaves this process another parent.
const { ppid } = process;
const look = () => {
  if (process.ppid === ppid) return;
  clearInterval(looking); // A later signal would mean that the end is to be forced.
  child.kill("SIGTERM");
};
const looking = process.env.npm_lifecycle_event && setInterval(look, 250).unref();
child.on("error", (error) => {
  process.stderr.write(`heddle: could not start ${node}: ${error.message}\n`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(code ?? 128 + (constants.signals[signal] ?? 0));
});
