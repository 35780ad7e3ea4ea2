import { createServer } from "node:net";
import { AppError } from "@heddle/base/errors";

export const LOOPBACK = "127.0.0.1";

/** The ports of one master, for clients and for nodes. */
export interface MasterPorts {
  readonly http: number;
  readonly grpc: number;
}

const HIGHEST_PORT = 65_535;
/** gRPC ports are this far above the HTTP port, so that a restart finds the same ones. */
const GRPC_OFFSET = 1_000;
const PORTS_TO_SUGGEST = 20;

/** The ports of `count` masters from `firstHttp` on; throws `conflict` if one is in use. */
export async function planPorts(firstHttp: number, count: number): Promise<MasterPorts[]> {
  const ports: MasterPorts[] = [];
  for (let i = 0; i < count; i++) {
    const http = firstHttp + i;
    if (!(await isFree(http))) throw await portInUse(http, count);
    ports.push({ http, grpc: await grpcPort(http + GRPC_OFFSET) });
  }
  return ports;
}

/** Users do not type gRPC ports, so any free one replaces a port in use. */
async function grpcPort(usual: number): Promise<number> {
  if (usual <= HIGHEST_PORT && (await isFree(usual))) return usual;
  const port = await tryListen(0);
  if (port === undefined) throw new AppError("unavailable", "This machine has no free port.");
  return port;
}

async function portInUse(port: number, count: number): Promise<AppError> {
  const free = await freePortAfter(port, count);
  const fix = `Stop the program that uses it, or give another: --port ${free ?? "PORT"}`;
  return new AppError("conflict", `Port ${port} on ${LOOPBACK} is in use. ${fix}`);
}

/** A port near above for the first of `count` masters; undefined if there is none. */
export async function freePortAfter(port: number, count: number): Promise<number | undefined> {
  for (let p = port + 1; p <= port + PORTS_TO_SUGGEST; p++) {
    if (p + count - 1 <= HIGHEST_PORT && (await isFree(p))) return p;
  }
  return undefined;
}

export async function isFree(port: number): Promise<boolean> {
  return (await tryListen(port)) !== undefined;
}

/** The port if it can be listened on, closed again; undefined if it is in use or forbidden. */
function tryListen(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen({ host: LOOPBACK, port, exclusive: true }, () => {
      const address = server.address();
      const found = typeof address === "object" && address ? address.port : undefined;
      server.close(() => resolve(found));
    });
  });
}
