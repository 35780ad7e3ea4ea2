import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { freePort } from "@heddle/base/testing/free-ports";
import { Child } from "../support/child-process.ts";
import { benchFolder } from "../support/command-line.ts";
import type { DataSide } from "./data-side.ts";

/** Programs of peers/*.cc, which say how they are built. */
export interface NativePeers {
  readonly grpcCpp?: string | undefined;
  readonly psLite?: string | undefined;
}

/** Over TCP a model as one message and in pieces, and in pieces over a unix socket; the best counts. */
const PS_LITE = [
  { name: "ps-lite, 1 message", pieces: false, local: "0" },
  { name: "ps-lite, 4 MiB", pieces: true, local: "0" },
  { name: "ps-lite, 4 MiB, unix", pieces: true, local: "1" },
] as const;
const PIECE_BYTES = 4 * 1024 * 1024;

/** The sides of the available peers. */
export async function nativeSides(peers: NativePeers, bytes: number): Promise<DataSide[]> {
  const sides: DataSide[] = [];
  if (peers.grpcCpp) sides.push(await grpcCppSide(peers.grpcCpp, bytes));
  for (const one of peers.psLite ? PS_LITE : []) {
    // A model that is no larger than a piece is one message.
    if (one.pieces && one.local === "0" && bytes <= PIECE_BYTES) continue;
    sides.push(await psLiteSide(one, peers.psLite ?? "", bytes));
  }
  return sides;
}

async function grpcCppSide(program: string, bytes: number): Promise<DataSide> {
  const server = start("gRPC C++ server", program, ["serve", String(bytes)]);
  const address = (await server.line(/ready (.+)/, 20_000))[1] ?? "";
  const driver = start("gRPC C++", program, ["drive", String(bytes), address]);
  return driven("gRPC C++", driver, [server]);
}

async function psLiteSide(
  { name, pieces, local }: (typeof PS_LITE)[number],
  program: string,
  bytes: number,
): Promise<DataSide> {
  const message = pieces ? Math.min(PIECE_BYTES, bytes) : bytes;
  const common = {
    DMLC_PS_ROOT_URI: "127.0.0.1",
    DMLC_PS_ROOT_PORT: String(await freePort()),
    DMLC_NUM_WORKER: "1",
    DMLC_NUM_SERVER: "1",
    DMLC_NODE_HOST: "127.0.0.1",
    DMLC_LOCAL: local,
  };
  const [scheduler, server, worker] = ["scheduler", "server", "worker"].map((role) =>
    start(`ps-lite ${role}`, program, [String(bytes), String(message)], {
      ...common,
      DMLC_ROLE: role,
    }),
  ) as [Child, Child, Child];
  await worker.line(/ready/, 20_000);
  return driven(name, worker, [server, scheduler]);
}

function start(
  name: string,
  command: string,
  args: readonly string[],
  env?: Readonly<Record<string, string>>,
): Child {
  const logFile = join(benchFolder, `peer-${randomUUID()}.log`);
  return new Child({ name, command, args, env, logFile, input: true });
}

/** A side whose program takes a line per push or pull and reports its time. */
function driven(name: string, driver: Child, others: readonly Child[]): DataSide {
  let number = 0;
  const order = async (what: "push" | "pull") => {
    driver.writeLine(what);
    const done = await driver.line(new RegExp(`^done ${++number} (.+)`), 60_000);
    return Number(done[1]);
  };
  return {
    name,
    pids: [driver.pid, ...others.map(({ pid }) => pid)],
    push: () => order("push"),
    pull: () => order("pull"),
    close: async () => {
      for (const child of [driver, ...others]) await child.stop();
    },
  };
}
