import { hostname } from "node:os";
import { nodeCredentials, type RunningCredentials } from "../pki/node-credentials.ts";
import type { NodeRole } from "../pki/node-name.ts";
import type { NodeLog } from "./log.ts";
import type { NodeFlags } from "./node-flags.ts";

/** What a node proves itself with: a certificate that renews itself under --tls, else the token. */
export async function ownCredentials(
  flags: NodeFlags,
  role: NodeRole,
  log: NodeLog,
): Promise<RunningCredentials> {
  const { dataDirectory, masters, joinToken, clusterToken } = flags;
  if (!flags.tls) return { clusterToken, close: () => {} };
  const name = flags.name ?? hostname();
  return nodeCredentials({ dataDirectory, role, name, masters, joinToken, log });
}
