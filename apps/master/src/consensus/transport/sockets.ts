import { once } from "node:events";
import { createServer, connect as dialPlain, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, connect as dialTls, type TLSSocket } from "node:tls";
import { AppError } from "@heddle/base/errors";
import type { TlsIdentity } from "@heddle/rpc/pki/tls-identity";

/** Where a member listens for the others. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** A handshake that takes longer is given up, on either side. */
const HANDSHAKE_MS = 5_000;
/** Nodes are known by their certificates' URIs; this is the host name that gRPC asks for too. */
const SERVER_NAME = "heddle.node";

/**
 * A server for the other masters' connections. Under TLS it hands on those only whose certificate
 * has passed, with why it does not do for a master.
 */
export function createPeerServer(
  tls: TlsIdentity | undefined,
  onSocket: (socket: Socket, fault?: AppError) => void,
): Server {
  if (!tls) return createServer({ noDelay: true }, (socket) => onSocket(socket));
  const checks = { requestCert: true, rejectUnauthorized: true, handshakeTimeout: HANDSHAKE_MS };
  const server = createTlsServer({ ...tls.secureContext, ...checks, noDelay: true }, (socket) =>
    onSocket(socket, tls.peerFault(socket.getPeerCertificate(), ["master"])),
  );
  const forget = tls.onUpdate(() => server.setSecureContext(tls.secureContext));
  return server.once("close", forget);
}

/** Dials a master. Under TLS it resolves when the other side's certificate has passed as one's. */
export async function dialPeer(
  { host, port }: Endpoint,
  tls: TlsIdentity | undefined,
): Promise<Socket> {
  const socket = tls ? dialMaster(host, port, tls) : dialPlain({ host, port });
  socket.setNoDelay(true);
  // Whoever reads or writes meets errors; one that comes in between must not end the process.
  socket.on("error", () => undefined);
  if (!tls) return socket;
  try {
    await once(socket, "secureConnect", { signal: AbortSignal.timeout(HANDSHAKE_MS) });
    return socket;
  } catch (error) {
    socket.destroy();
    if (error instanceof AppError) throw error;
    const { message } = error as Error;
    const what = `no TLS connection to the master at ${host}:${port}: ${message}`;
    throw new AppError("unavailable", what, { cause: error });
  }
}

/** Who is at the other end by its certificate, and until when that holds; undefined without TLS. */
export function shownBy(
  socket: Socket,
  tls: TlsIdentity | undefined,
): { readonly name: string; readonly validMs: number } | undefined {
  if (!tls) return undefined;
  const certificate = (socket as TLSSocket).getPeerCertificate();
  const { name } = tls.peerName(certificate, ["master"]);
  return { name, validMs: Date.parse(certificate.valid_to) - Date.now() };
}

function dialMaster(host: string, port: number, tls: TlsIdentity): Socket {
  return dialTls({
    ...{ host, port, ...tls.secureContext, servername: SERVER_NAME },
    checkServerIdentity: (_host, shown) => tls.peerFault(shown, ["master"]),
  });
}
