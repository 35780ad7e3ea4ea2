import type { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { connect, type DetailedPeerCertificate } from "node:tls";
import { type Finding, Reporter } from "./finding.ts";

const TIMEOUT_MS = 3_000;
const DAY_MS = 86_400_000;
/** Nodes renew theirs when a third of the lifetime is left. */
const LEAST_SHARE = 0.25;
const LEAST_DAYS = 14;

/** The owner of a certificate decides how it is renewed. */
export type CertificateKind = "authority" | "node" | "endpoint";

/** What a certificate says of itself. */
interface Validity {
  readonly validFrom: string;
  readonly validTo: string;
}

const FIXES: Readonly<Record<CertificateKind, string>> = {
  authority: "The cluster needs a new authority, and every node a certificate of it.",
  node: "The node renews it itself while it reaches the leader: see its log, or let it join again with a new token (heddle cluster join-token).",
  endpoint: "Renew the certificate of the proxy or load balancer before the masters.",
};

/** Whether a certificate is valid now and for long enough. */
export function certificateFinding(
  where: string,
  { validFrom, validTo }: Validity | X509Certificate,
  kind: CertificateKind,
  nowMs = Date.now(),
): Finding {
  const report = new Reporter("certificate", where);
  const [fromMs, untilMs] = [Date.parse(validFrom), Date.parse(validTo)];
  const until = new Date(untilMs).toISOString();
  if (nowMs < fromMs) {
    const what = `the ${kind}'s certificate is valid from ${new Date(fromMs).toISOString()} only`;
    return report.error(what, "Set this machine's clock, or that of the machine that issued it.");
  }
  if (nowMs > untilMs) {
    return report.error(`the ${kind}'s certificate expired at ${until}`, FIXES[kind]);
  }
  const leastMs = Math.min(LEAST_DAYS * DAY_MS, (untilMs - fromMs) * LEAST_SHARE);
  if (untilMs - nowMs < leastMs) {
    return report.warning(`the ${kind}'s certificate expires at ${until}`, FIXES[kind]);
  }
  return report.ok(`the ${kind}'s certificate is valid until ${until}`);
}

/** The certificates that a server shows, its own first; none if it speaks no TLS or is unreachable. */
export async function shownCertificates(host: string, port: number): Promise<Validity[]> {
  const { promise, resolve } = Promise.withResolvers<Validity[]>();
  const socket = connect({
    host,
    port,
    ...(isIP(host) ? {} : { servername: host }),
    // Only read here; every call of a client verifies it.
    rejectUnauthorized: false,
    ALPNProtocols: ["h2", "http/1.1"],
    timeout: TIMEOUT_MS,
  });
  socket.once("secureConnect", () => resolve(chainOf(socket.getPeerCertificate(true))));
  socket.once("error", () => resolve([]));
  socket.once("timeout", () => resolve([]));
  const found = await promise;
  socket.destroy();
  return found;
}

function chainOf(first: DetailedPeerCertificate | undefined): Validity[] {
  const chain: Validity[] = [];
  for (let at = first; at?.valid_to && chain.length < 8; at = at.issuerCertificate) {
    chain.push({ validFrom: at.valid_from, validTo: at.valid_to });
    if (at.issuerCertificate === at) break;
  }
  return chain;
}
