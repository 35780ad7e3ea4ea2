// holds: scale-dispatch

import { createSecretKey } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@heddle/base/clock";
import { eventually } from "@heddle/base/testing/eventually";
import { nodeOffer } from "@heddle/control/jobs/testing/specs";
import { expect, test } from "vitest";
import { NO_DIVISIONS } from "../../../test/fixtures.ts";
import { VolatileControl } from "../../../test/test-master.ts";
import type { NodeView } from "../../nodes/node-directory.ts";
import { ProgressBook } from "../../nodes/progress/progress-book.ts";
import { TaskSecrets } from "../../task-output/task-secrets.ts";
import { TaskDispatch } from "./task-dispatch.ts";

test("dispatch: a change of a node is handled at once, others at intervals", async () => {
  const control = new VolatileControl();
  const credentials = { clusterToken: "a-token-of-sixteen-characters" };
  let checks = 0;
  const directory = {
    nodes: (): NodeView[] => {
      checks += 1;
      return [];
    },
    silentMs: () => 0,
    pull: () => {
      throw new Error("nothing is pulled");
    },
    replicasOf: () => [],
    workersLost: 0,
    divisions: NO_DIVISIONS,
  };
  const log = { info() {}, warn() {}, error() {} };
  const dispatch = new TaskDispatch(
    { masterId: "m", leaseMs: 10_000, clock: systemClock, log },
    control,
    directory,
    credentials,
    new TaskSecrets(createSecretKey(Buffer.alloc(32)), credentials, () => ""),
    new ProgressBook(),
  );
  try {
    await eventually(() => checks > 0, "the first round");
    const beganMs = performance.now();
    checks = 0;
    for (let value = 1; value <= 60; value++) {
      await control.propose({ type: "setting.put", atMs: 0, name: "shared_storage_gb", value });
      await delay(10);
    }
    const periods = (performance.now() - beganMs) / 250;
    expect(checks).toBeLessThanOrEqual(periods + 1);
    const before = checks;
    for (let at = 0; at < 20; at++) {
      await control.propose({ type: "node.join", atMs: 0, offer: nodeOffer(`n${at}`) });
      const checked = checks;
      await eventually(() => checks > checked, "the node is checked");
    }
    expect(checks - before).toBeGreaterThanOrEqual(20);
  } finally {
    dispatch.close();
  }
});
