import { AppError } from "@heddle/base/errors";
import { eventLogOperations } from "@heddle/contracts/api/events/log";
import { readBundle } from "@heddle/event-store/export/tile-files";
import { levelWidth, TILE_WIDTH } from "@heddle/event-store/merkle/tile";
import { parseTilePath } from "@heddle/event-store/merkle/tile-path";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { ownEventLog } from "./own-event-log.ts";

/** The event log as the files of C2SP tlog-tiles, beside its checkpoint. */
@Controller()
export class EventTilesController {
  readonly #control: ControlPlane;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  @Serves(eventLogOperations.tile)
  async tile(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    const { store } = ownEventLog(this.#control);
    if (!requestCaller(request).grants.may("events:read", "")) {
      const message =
        "The tiles are of the events of all projects: they need events:read in the whole cluster.";
      throw new AppError("permission_denied", message);
    }
    const path = `tile/${(request.params as { readonly "*"?: string })["*"]}`;
    const found = parseTilePath(path);
    const end = found && found.tile.index * TILE_WIDTH + found.tile.width;
    if (!end || end > levelWidth(store.size, found.tile.level)) {
      const message = `The log of ${store.size} events has no ${path.slice(0, 60)}: give a path of C2SP tlog-tiles, as tile/0/000.p/5 or tile/entries/000.`;
      throw new AppError("not_found", message);
    }
    const { tile, isBundle } = found;
    const bytes = isBundle ? await readBundle(store, tile) : await store.readTile(tile);
    // What a path names never changes.
    reply.header("cache-control", "private, max-age=31536000, immutable");
    await reply.header("content-type", "application/octet-stream").send(Buffer.from(bytes));
  }
}
