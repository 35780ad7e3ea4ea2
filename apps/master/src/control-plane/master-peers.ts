import type { NodeCredentials } from "@heddle/rpc/credentials";
import { Peer } from "@heddle/rpc/peer";
import type { ControlPlane } from "./control-plane.ts";

/** Connections to other masters, by their addresses. */
export class MasterPeers {
  readonly #control: Pick<ControlPlane, "group">;
  readonly #credentials: NodeCredentials;
  readonly #peers = new Map<string, Peer>();

  constructor(control: Pick<ControlPlane, "group">, credentials: NodeCredentials) {
    this.#control = control;
    this.#credentials = credentials;
  }

  get(address: string): Peer {
    let peer = this.#peers.get(address);
    if (!peer) {
      this.#dropUnknown();
      peer = new Peer(address, this.#credentials);
      this.#peers.set(address, peer);
    }
    return peer;
  }

  close(): void {
    for (const peer of this.#peers.values()) peer.close();
  }

  /** Closes the connections to masters that are no members any more. */
  #dropUnknown(): void {
    const { members = [] } = this.#control.group?.status() ?? {};
    for (const [address, peer] of this.#peers) {
      if (members.some((member) => member.address === address)) continue;
      peer.close();
      this.#peers.delete(address);
    }
  }
}
