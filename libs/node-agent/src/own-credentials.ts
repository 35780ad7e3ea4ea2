import { hostname } from "node:os";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { NODE_NAME, type NodeRole } from "@heddle/pki/node-name";
import type { KnownMasters } from "./masters/known-masters.ts";
import { nodeCredentials, type RunningCredentials } from "./node-credentials.ts";
import type { NodeFlags } from "./node-flags.ts";

/** The warning of a node that was started with --insecure-nodes. */
export const INSECURE_NODES =
  "no TLS between nodes (--insecure-nodes): who can reach their ports can read and change what they send";

/** A node's credentials: a self-renewing certificate with --tls, otherwise the token. */
export async function ownCredentials(
  flags: NodeFlags,
  role: NodeRole,
  known: Pick<KnownMasters, "addresses">,
  log: Log,
): Promise<RunningCredentials> {
  const { dataDirectory, joinToken, enrollKeyFile, clusterToken } = flags;
  const name = nodeNameFor(flags);
  if (flags.isExposed) log.warn({}, INSECURE_NODES);
  if (!flags.tls) return { clusterToken, node: { role, name }, close: () => {} };
  const proof = { joinToken, enrollKeyFile };
  const masters = () => known.addresses;
  return nodeCredentials({ dataDirectory, role, name, masters, ...proof, log });
}

/** The node's name: the given one, or its machine's. */
export function nodeNameFor({ name = hostname() }: Pick<NodeFlags, "name">): string {
  if (NODE_NAME.test(name)) return name;
  const message = `a node's name has 1 to 63 letters, digits, ".", "_" or "-", not ${JSON.stringify(name)}: give --name`;
  throw new AppError("invalid_value", message);
}
