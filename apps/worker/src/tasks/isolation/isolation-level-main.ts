import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Isolation } from "./isolation.ts";

// Prints how a worker of this user would isolate its tasks, by the trial of a worker's start.

const folder = mkdtempSync(join(tmpdir(), "heddle-isolation-"));
try {
  const { level, reasons } = await Isolation.find({
    dataDirectory: folder,
    checkpointRoot: join(folder, "checkpoints"),
    onFault: (message) => process.stderr.write(`${message}\n`),
    programs: [],
  });
  process.stdout.write(`${JSON.stringify({ level, reasons })}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
