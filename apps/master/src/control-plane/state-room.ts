import { setInterval as every } from "node:timers/promises";
import { settingValue } from "@heddle/contracts/api/settings";
import { versionOf } from "@heddle/control/cluster-version";
import { BOUNDED_FROM } from "@heddle/control/state-limits";
import type { Logger } from "@heddle/observability/logger";
import type { ControlPlane } from "./control-plane.ts";

const CHECK_MS = 1_000;

/**
 * Lowers the setting `state_mib` wherever it exceeds what this master's heap holds, until the
 * signal aborts. No master may take in more than the one with the least memory can replay.
 */
export async function keepStateRoom(
  control: ControlPlane,
  roomMib: number,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  try {
    for await (const _ of every(CHECK_MS, undefined, { signal, ref: false })) {
      // Without a leader, or with another one, the next check sees the result.
      await lower(control, roomMib, log).catch(() => undefined);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

async function lower(control: ControlPlane, roomMib: number, log: Logger): Promise<void> {
  const { settings } = control.state;
  const [value, version] = [
    settingValue(settings, "state_mib"),
    settings.get("state_mib")?.version ?? 0,
  ];
  if (value <= roomMib || versionOf(control.state) < BOUNDED_FROM) return;
  const command = {
    type: "setting.put",
    atMs: Date.now(),
    name: "state_mib",
    value: roomMib,
    ifVersion: version,
  } as const;
  if (!(await control.propose(command)).ok) return;
  const text =
    "the cluster setting state_mib is lowered to what this master's heap holds; NODE_OPTIONS=--max-old-space-size=N gives it more";
  if (version > 0) log.warn({ from: value, to: roomMib }, text);
  else log.info({ from: value, to: roomMib }, text);
}
