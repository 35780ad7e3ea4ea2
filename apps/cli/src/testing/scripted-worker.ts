import { spawn } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { exitWithParent } from "@heddle/base/process/exit-with-parent";

/**
 * A process with a worker's command line. SCRIPT selects its behaviour:
 * - `stubborn`: ignores SIGTERM; `crash-once`: crashes at its first start,
 * - `grandchild`: starts a process and logs its id; `fail`: logs that a replica failed.
 */
const { values: flags } = parseArgs({ strict: false, options: { data: { type: "string" } } });
const script = process.env["SCRIPT"] ?? "";

exitWithParent();
process.on("SIGTERM", () => {
  log("asked to stop");
  if (script !== "stubborn") process.exit(0);
});
const marker = join(String(flags["data"] ?? "."), "crashed");
if (script === "crash-once" && !existsSync(marker)) {
  writeFileSync(marker, "");
  log("about to crash", 50);
  process.exit(3);
}
if (script === "grandchild") {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], {
    stdio: "inherit",
  });
  log("started", 30, { grandchild: child.pid });
}
if (script === "fail") log("a replica failed", 50, { error: "no source could be reached." });
log("ready");
setInterval(() => {}, 1_000);

function log(msg: string, level = 30, fields: object = {}): void {
  process.stdout.write(`${JSON.stringify({ level, time: 0, msg, ...fields })}\n`);
}
