import { mkdirSync } from "node:fs";
import { exitWithParent } from "@heddle/base/process/exit-with-parent";
import { NO_SECRET_KEYS } from "@heddle/base/secret-keys";
import { startIdentity, writeIdentity } from "@heddle/consensus/member/identity";
import { ThreadedReplica } from "@heddle/consensus/thread/threaded-replica";
import { createLogger } from "@heddle/observability/logger";
import { serveControllers } from "@heddle/rpc/nest/serve-controllers";
import { bindServer } from "@heddle/rpc/server";
import { RaftController } from "../../apps/master/dist/control-plane/raft/raft.controller.js";
import { RaftService } from "../../apps/master/dist/control-plane/raft/raft-service.js";
import { benchCredentials } from "./heddle-client.ts";
import { encodePut, KvMachine } from "./kv-machine.ts";
import { serveKv } from "./kv-service.ts";

// A master's Raft thread (replica, log, transport) with a key-value state in place of the control
// state, and a streaming API in place of HTTP. Arguments: id, the group's ports, directory.

const [idText = "1", portsText = "", directory = "", snapshotEntries = "100000"] =
  process.argv.slice(2);
const id = Number(idText);
const members = portsText.split(",").map((port, at) => ({
  id: at + 1,
  name: `m${at + 1}`,
  address: `127.0.0.1:${port}`,
  nonce: `n${at + 1}`,
}));
const own = members[id - 1];
if (!own) throw new Error(`there is no member ${id} among ${members.length}`);

mkdirSync(directory, { recursive: true });
const logger = createLogger({ service: "bench-member", level: "info" });
const port = Number(own.address.split(":")[1]);
const server = await bindServer({ host: "127.0.0.1", port, credentials: benchCredentials });
const raft = { controllers: [RaftController], providers: [RaftService] };
const context = await serveControllers({ module: class Raft {}, ...raft }, server.server);
const service = context.get(RaftService);
const identity = {
  ...(await startIdentity(directory, own.name, { newestVersion: 1 })),
  cluster: "bench",
  id,
  beginning: { kind: "first" as const, members },
};
await writeIdentity(directory, identity, NO_SECRET_KEYS);
const machine = new KvMachine();
const startedMs = performance.now();
const { replica, port: raftPort } = await ThreadedReplica.open<undefined>({
  identity,
  directory,
  credentials: benchCredentials,
  addresses: new Map(),
  listen: { host: "127.0.0.1", port: 0 },
  snapshotEntries: Number(snapshotEntries),
  machine,
  log: logger,
  onFatal: (error) => {
    logger.fatal({ err: error }, error.message);
    process.exit(1);
  },
});
service.serve({
  port: raftPort,
  introduce: () => {
    throw new Error("the benchmark's group is given");
  },
});
serveKv(server.server, {
  async handle({ op, key, value }) {
    if (op === "put") {
      await replica.propose(encodePut(key, value));
      return undefined;
    }
    await replica.readBarrier();
    return machine.values.get(key);
  },
  async ask(question) {
    const [verb, argument] = question.split(" ");
    if (verb === "transfer") replica.transferLeadership(Number(argument));
    if (verb === "block") blockFor(Number(argument));
    await replica.refresh();
    const { id, role, term, commit, applied } = replica.status();
    return { id, isLeader: role === "leader", term, commit, applied, keys: machine.values.size };
  },
});
exitWithParent();
process.on("SIGTERM", () => process.exit(0));
console.log(`ready in ${Math.round(performance.now() - startedMs)} ms`);

/** Keeps this thread's event loop busy, as a flood of HTTP requests would. */
function blockFor(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}
