// `npm run test:kube`: the tests that need a real Kubernetes, on the cluster of HEDDLE_KUBECONFIG,
// or on one that is started for them. Arguments go to vitest.
// - HEDDLE_KUBE_RIG: a folder with a program rig.sh (up, down, load, restart), which starts a
//   cluster.
// - HEDDLE_KUBE_IMAGES: what deploy/images/build.sh --out wrote.
// - HEDDLE_KUBE_PREVIOUS: what build-previous.sh wrote.
// - HEDDLE_KUBE_OUTAGE_SECONDS: 600 makes outages of the API server longer.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { ROOT, setUp } from "../setup.mjs";

const { node, env } = setUp();
const rig = process.env.HEDDLE_KUBE_RIG;
const images = process.env.HEDDLE_KUBE_IMAGES;
let kubeconfig = process.env.HEDDLE_KUBECONFIG;
if (kubeconfig === undefined && (rig === undefined || !existsSync(join(rig, "rig.sh")))) {
  console.log(
    "skipped: HEDDLE_KUBECONFIG names no cluster, and HEDDLE_KUBE_RIG no folder with a rig.sh",
  );
  console.log("0 passed, 0 failed");
  process.exit(0);
}

const isOwn = kubeconfig === undefined;
if (isOwn) {
  const lines = rigRun("up", { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8" });
  kubeconfig = /KUBECONFIG=(\S+)/.exec(lines)?.[1];
  if (kubeconfig === undefined) {
    console.error(
      `rig.sh up names no KUBECONFIG: ${lines.trim()}. Give HEDDLE_KUBECONFIG if it runs.`,
    );
    process.exit(1);
  }
}
const previous = process.env.HEDDLE_KUBE_PREVIOUS;
for (const folder of [images, previous && join(previous, "images")]) {
  if (rig === undefined || !folder) continue;
  const archives = readdirSync(folder).filter((file) => file.endsWith(".tar"));
  for (const file of archives) rigRun("load", { stdio: "inherit" }, join(folder, file));
}
const auditLog =
  process.env.HEDDLE_KUBE_AUDIT_LOG ?? (isOwn ? join(dirname(kubeconfig), "log/audit.log") : "");
const kube = { HEDDLE_KUBECONFIG: kubeconfig, HEDDLE_KUBE_AUDIT_LOG: auditLog };
const args = process.argv.slice(2);
const { status } = spawnSync(
  node,
  [
    join(ROOT, "node_modules/vitest/vitest.mjs"),
    "run",
    "--no-file-parallelism",
    ...(args.length > 0 ? args : ["tools/kubernetes"]),
  ],
  { cwd: ROOT, stdio: "inherit", env: { ...env, ...kube } },
);
if (isOwn) rigRun("down", { stdio: "inherit" });
process.exit(status ?? 1);

function rigRun(command, options, ...args) {
  const { status, stdout, error } = spawnSync(join(rig, "rig.sh"), [command, ...args], options);
  if (status === 0) return stdout ?? "";
  console.error(`rig.sh ${command} failed${error ? `: ${error.message}` : ""}`);
  process.exit(1);
}
