import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer, type Server } from "node:net";

/** A free port, held until the task whose rendezvous it is begins. */
export class PortReservation {
  readonly address: string;
  readonly #server: Server;

  private constructor(server: Server, address: string) {
    this.#server = server;
    this.address = address;
  }

  /** `host` is this node's name for the others; the task may listen on any of its addresses. */
  static async take(host: string): Promise<PortReservation> {
    const server = createServer((socket) => socket.destroy());
    server.listen(0);
    await once(server, "listening");
    server.unref();
    const { port } = server.address() as AddressInfo;
    return new PortReservation(server, `${host}:${port}`);
  }

  /** From now on the task may listen there. */
  release(): Promise<void> {
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}
