import { AppError } from "@heddle/base/errors";
import {
  CLUSTER_SETTINGS,
  isSettingName,
  type Setting,
  type SettingName,
  settingFault,
  settingOperations,
} from "@heddle/contracts/api/settings";
import { Controller, Inject, Param, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { heapMibFor, stateRoomMib } from "../../control-plane/state-memory.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges, type RequestedChange } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { viewSetting } from "./setting-view.ts";

/** The answer to a change, without the resulting version. */
interface SettingAnswer {
  readonly value: number;
  readonly updatedAtMs: number;
}

/** The settings that all masters share, each with a version for compare-and-set. */
@Controller()
export class SettingsController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(settingOperations.list)
  list(): { object: "list"; data: Setting[] } {
    const names = Object.keys(CLUSTER_SETTINGS) as SettingName[];
    return { object: "list", data: names.map((name) => this.#view(name)) };
  }

  @Serves(settingOperations.get)
  get(@Param("name") name: string, @Res({ passthrough: true }) reply: FastifyReply): Setting {
    return tagged(this.#view(known(name)), reply);
  }

  @Serves(settingOperations.set)
  async set(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") given: string,
  ): Promise<Setting> {
    const name = known(given);
    return this.#changes.make(
      request,
      reply,
      () => requestedChange(name, request),
      (answer, { version = 0 }) => tagged(viewSetting(name, { ...answer, version }), reply),
    );
  }

  #view(name: SettingName): Setting {
    return viewSetting(name, this.#control.state.settings.get(name));
  }
}

function known(name: string): SettingName {
  if (isSettingName(name)) return name;
  const names = Object.keys(CLUSTER_SETTINGS).join(", ");
  throw new AppError("not_found", `No setting has the name ${name}. There are ${names}.`);
}

function tagged(view: Setting, reply: FastifyReply): Setting {
  reply.header("etag", `"${view.version}"`);
  return view;
}

function requestedChange(
  name: SettingName,
  request: CallerRequest,
): RequestedChange<SettingAnswer> {
  const { value } = bodyOf(settingOperations.set, request);
  const fault = settingFault(name, value) ?? roomFault(name, value);
  if (fault !== undefined) {
    throw new AppError("invalid_value", `Invalid value for 'value': ${fault}.`, { param: "value" });
  }
  const ifVersion = versionOf(request.headers["if-match"]);
  const atMs = Date.now();
  const command = { type: "setting.put" as const, atMs, name, value, ifVersion };
  return { command, answer: { value, updatedAtMs: atMs } };
}

/** Why this master's memory does not allow the value; another master may have less. */
function roomFault(name: SettingName, value: number): string | undefined {
  const room = stateRoomMib();
  if (name !== "state_mib" || value <= room) return undefined;
  return `this master's heap holds ${room} MiB at most; start the masters with more, by NODE_OPTIONS=--max-old-space-size=${heapMibFor(value)}`;
}

/** The version in an ETag; undefined if any matches. */
function versionOf(ifMatch: string | undefined): number | undefined {
  if (ifMatch === undefined || ifMatch === "*") return undefined;
  const version = /^"(\d{1,15})"$/.exec(ifMatch)?.[1];
  if (version !== undefined) return Number(version);
  const message = `Invalid value for the header 'If-Match': expected a setting's ETag such as "3", with its quotes.`;
  throw new AppError("invalid_value", message, { param: "If-Match" });
}
