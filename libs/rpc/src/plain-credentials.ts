import type { NodeCredentials, PlainCredentials } from "./credentials.ts";

/** What a thread was given; gRPC, half of the start of a thread, is loaded only for TLS. */
export async function fromPlainCredentials({
  tls,
  ...rest
}: PlainCredentials): Promise<NodeCredentials> {
  if (!tls) return rest;
  const { TlsIdentity } = await import("@heddle/pki/tls-identity");
  return { ...rest, tls: new TlsIdentity(tls) };
}
