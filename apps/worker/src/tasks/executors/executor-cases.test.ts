// holds: executor-kit

import { execFileSync } from "node:child_process";
import { afterAll } from "vitest";
import { executorCases } from "../../../test/executor-kit.ts";
import { forgetPodman, image, preparePodman } from "../../../test/podman.ts";
import { ProcessScan } from "./process-scan.ts";

const noPodman = preparePodman() || undefined;
afterAll(forgetPodman);

executorCases({
  title: "processes",
  why: undefined,
  spec: { executor: "process" },
  settings: () => ({ isIsolationOptional: true }),
  environment: () => ({}),
  remains: (nodeId) =>
    ProcessScan.now()
      .marked()
      .flatMap(({ mark }) => (mark.startsWith(`${nodeId}/`) ? [mark] : [])),
});

executorCases({
  title: "containers",
  why: noPodman,
  spec: { executor: "container", containerImage: image, memoryBytes: 64e6 },
  settings: () => ({ isIsolationOptional: true }),
  environment: () => ({}),
  remains(nodeId) {
    const own = ["--filter", `label=heddle.node=${nodeId}`, "--format", "{{.Names}}"];
    const names = execFileSync("podman", ["ps", "--all", ...own])
      .toString()
      .split("\n");
    return names.filter((name) => name !== "");
  },
});
