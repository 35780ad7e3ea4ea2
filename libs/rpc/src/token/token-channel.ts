import type { Socket } from "node:net";
import { CallCredentials, ChannelCredentials } from "@grpc/grpc-js";
import { AppError } from "@heddle/base/errors";
import type { NodeRole } from "@heddle/pki/node-name";
import { proveToListener, type TokenHolder } from "./handshake.ts";

type SecureConnector = ReturnType<ChannelCredentials["_createSecureConnector"]>;

/** Plain connections that begin with the handshake of the cluster token. */
export class TokenChannelCredentials extends ChannelCredentials {
  readonly #own: TokenHolder;
  readonly #role: NodeRole;

  /** `role` is the role that the other side must claim. */
  constructor(own: TokenHolder, role: NodeRole) {
    super();
    this.#own = own;
    this.#role = role;
  }

  override _isSecure(): boolean {
    return false;
  }

  override _equals(other: ChannelCredentials): boolean {
    return this === other;
  }

  override _createSecureConnector(): SecureConnector {
    const none = CallCredentials.createEmpty();
    return {
      connect: async (socket) => {
        await this.#prove(socket);
        return { socket, secure: false };
      },
      waitForReady: () => Promise.resolve(),
      getCallCredentials: () => none,
      destroy: () => undefined,
    };
  }

  async #prove(socket: Socket): Promise<void> {
    // The connection's user handles errors; one before that must not end the process.
    socket.on("error", () => undefined);
    const { role, name } = await proveToListener(socket, this.#own);
    if (role === this.#role) return;
    throw new AppError("permission_denied", `${name} is a ${role}; this is for a ${this.#role}`);
  }
}
