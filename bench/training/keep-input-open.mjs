import { spawn } from "node:child_process";

// Runs a node that ends with its parent, with an input that stays open as long as this process lives.
const child = spawn(process.execPath, process.argv.slice(2), {
  stdio: ["pipe", "inherit", "inherit"],
});
child.on("exit", (code) => process.exit(code ?? 1));
process.on("SIGTERM", () => child.kill("SIGTERM"));
