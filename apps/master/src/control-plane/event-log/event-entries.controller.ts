import { AppError } from "@heddle/base/errors";
import type { EventBytes } from "@heddle/contracts/generated/heddle/v1/EventBytes";
import type { EventHashes } from "@heddle/contracts/generated/heddle/v1/EventHashes";
import type { EventRange__Output } from "@heddle/contracts/generated/heddle/v1/EventRange";
import { TILE_WIDTH } from "@heddle/event-store/merkle/tile";
import { GrpcCall } from "@heddle/rpc/nest/grpc-call";
import { eventEntriesService } from "@heddle/rpc/proto";
import { Controller, Inject } from "@nestjs/common";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane.ts";
import { MAX_HASHES, MAX_READ } from "./event-catch-up.ts";

/** EventEntries of proto/events.proto: what other masters read of this one's event log. */
@Controller()
export class EventEntriesController {
  readonly #control: ControlPlane;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  @GrpcCall(eventEntriesService, "Read")
  async read({ origin, first, limit }: EventRange__Output): Promise<EventBytes> {
    const { events } = this.#control;
    const from = Number(first);
    if (!events || events.origin !== origin || from < events.store.first) {
      throw new AppError("not_found", `this master does not have event ${first} of ${origin}`);
    }
    if (from >= events.store.size) return { entries: [] };
    const { entries } = await events.store.read(from, Math.min(limit, MAX_READ));
    return { entries: entries.map((entry) => Buffer.from(entry)) };
  }

  @GrpcCall(eventEntriesService, "ReadHashes")
  async readHashes({ origin, first, limit }: EventRange__Output): Promise<EventHashes> {
    const { events } = this.#control;
    const from = Number(first);
    const size = events?.store.size ?? 0;
    const count = Math.min(limit, MAX_HASHES, size - from);
    if (events?.origin !== origin || from % TILE_WIDTH !== 0 || count < TILE_WIDTH) {
      throw new AppError("not_found", `this master has no hashes from ${first} on of ${origin}`);
    }
    const tiles: Uint8Array[] = [];
    for (let at = 0; at + TILE_WIDTH <= count; at += TILE_WIDTH) {
      const index = (from + at) / TILE_WIDTH;
      tiles.push(await events.store.readTile({ level: 0, index, width: TILE_WIDTH }));
    }
    return { hashes: Buffer.concat(tiles) };
  }
}
