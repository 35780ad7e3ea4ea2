// holds: task-isolation-level

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Isolation } from "./isolation.ts";

test.runIf(process.getuid?.() === 0)(
  "isolation: root with Landlock alone is not isolated, and the reason says so",
  async () => {
    const dataDirectory = mkdtempSync(join(tmpdir(), "heddle-isolation-"));
    onTestFinished(() => rmSync(dataDirectory, { recursive: true }));
    const { level, reasons } = await Isolation.find({
      dataDirectory,
      checkpointRoot: join(dataDirectory, "checkpoints"),
      programs: [],
      onFault: (message) => console.warn(message),
      taskUsers: "own",
    });
    expect(level).toBe("none");
    expect(reasons).toEqual([
      expect.stringContaining("--task-users own"),
      expect.stringMatching(/^Landlock: .*reads disks.*run the worker as another user/),
    ]);
  },
);
