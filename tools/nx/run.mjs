import { spawn } from "node:child_process";

/** Runs a program of node_modules in this process's place; resolves to its exit status. */
export function run(root, program, args) {
  const child = spawn(process.execPath, [program, ...args], { cwd: root, stdio: "inherit" });
  const pass = (signal) => child.kill(signal);
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  for (const signal of signals) process.on(signal, pass);
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => {
      for (const signal of signals) process.off(signal, pass);
      resolve(code ?? 1);
    });
  });
}
