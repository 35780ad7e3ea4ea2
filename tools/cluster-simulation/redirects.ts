import { registerHooks } from "node:module";

const HERE = new URL("./", import.meta.url).href;
const ROOT = new URL("../../", import.meta.url).href;

/** Replacements for modules of Node in the product's code. */
const BUILTINS: Readonly<Record<string, string>> = {
  "node:timers/promises": "timers-promises.ts",
  "node:fs/promises": "fs-promises.ts",
  "node:os": "os.ts",
  "node:crypto": "crypto.ts",
  "node:net": "net.ts",
};

/** Packages, likewise, for every module that imports them. */
const PACKAGES: Readonly<Record<string, string>> = { uid: "uid.ts" };

/** Modules of the product that reach the network, or processes of the real machine. */
const MODULES: Readonly<Record<string, string>> = {
  "libs/base/dist/process-alive.js": "process-alive.ts",
  "libs/node-agent/dist/gpu-probe.js": "gpu-probe.ts",
  "libs/rpc/dist/peer.js": "peer.ts",
  "libs/rpc/dist/server.js": "server.ts",
  "apps/master/dist/task-output/log-thread/start-log-store.js": "start-log-store.ts",
  "apps/parameter-server/dist/shard/freed-slabs.js": "freed-slabs.ts",
  "apps/parameter-server/dist/shard/start-thread.js": "start-thread.ts",
  "apps/trainer/dist/plans/plugin/load-plugins.js": "load-plugins.ts",
  "apps/trainer/dist/run/code-version.js": "code-version.ts",
  "apps/worker/dist/tasks/worker-executors.js": "worker-executors.ts",
  "apps/worker/dist/tasks/isolation/isolation.js": "isolation.ts",
  "apps/worker/dist/tasks/leases/lease-guard.js": "lease-guard.ts",
};

/** Has the product's compiled modules import their stand-ins of a simulation. */
export function redirectImports(): void {
  registerHooks({
    resolve(specifier, context, next) {
      const { parentURL = "" } = context;
      const isProduct = /^(apps|libs)\//.test(parentURL.replace(ROOT, ""));
      const named = PACKAGES[specifier] ?? (isProduct ? BUILTINS[specifier] : undefined);
      if (named) return standIn(named);
      const found = next(specifier, context);
      const replaced = isProduct ? MODULES[found.url.replace(ROOT, "")] : undefined;
      return replaced ? standIn(replaced) : found;
    },
  });
}

function standIn(file: string) {
  return { url: `${HERE}stand-ins/${file}`, format: "module-typescript", shortCircuit: true };
}
