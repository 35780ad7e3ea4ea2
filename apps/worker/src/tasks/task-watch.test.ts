import { expect, test } from "vitest";
import type { TaskDirectory } from "../records/task-directory.ts";
import type { TaskPlan } from "../records/task-plan.ts";
import type { TaskHandle } from "./executors/executor.ts";
import { TaskWatch } from "./task-watch.ts";

test.each([
  { asked: 245, used: 249_856, sizes: "it used 249.9 kB of the 245 bytes that" },
  { asked: 4e6, used: 5.25e6, sizes: "it used 5.25 MB of the 4 MB that" },
  { asked: 1e9, used: 2.5e9, sizes: "it used 2.5 GB of the 1 GB that" },
])("memory: a violation names both sizes in a unit that shows them", async ({ sizes, ...task }) => {
  const spec = { maxRuntimeMs: 0, hangTimeoutMs: 0, memoryBytes: task.asked, diskBytes: 0 };
  const watch = new TaskWatch({ spec } as unknown as TaskPlan, {} as TaskDirectory, 0, 0);
  const usage = () => Promise.resolve({ memoryBytes: task.used, processes: 1 });
  const verdict = await watch.check({ usage } as unknown as TaskHandle, 1_000);
  expect(verdict).toMatchObject({
    reason: "OutOfMemory",
    message: expect.stringContaining(sizes),
  });
});
