import type { Permission } from "@heddle/contracts/api/permission";
import type { PanelView } from "@heddle/contracts/api/plugins/panels";
import type { RouteRequest } from "./routes.ts";

/** A panel of the console, as data: no code of a plugin runs in a browser. */
export interface ConsolePanel {
  /** The last part of its route `GET /api/v1/custom/PLUGIN/console/NAME`. */
  readonly name: string;
  readonly title: string;
  /** Who sees it. */
  readonly permission: Permission | "authenticated";
  /** What it shows now; asked every few seconds while it is open. */
  show(request: Pick<RouteRequest, "caller" | "signal">): PanelView | Promise<PanelView>;
}
