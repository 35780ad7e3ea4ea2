import { CLUSTER_SETTINGS, type SettingName, type SettingSpec } from "@heddle/contracts/settings";
import type { SettingRecord } from "@heddle/control/state";

/** A setting of the cluster as the orchestration API shows it. */
export interface SettingView {
  readonly object: "cluster_setting";
  readonly name: SettingName;
  readonly value: number;
  /** The ETag's version; 0 if never set. */
  readonly version: number;
  readonly default: number;
  readonly type: SettingSpec["type"];
  readonly minimum: number;
  readonly maximum: number;
  readonly unit: string;
  readonly description: string;
  readonly updated_at: string | null;
}

export function viewSetting(name: SettingName, record: SettingRecord | undefined): SettingView {
  const spec: SettingSpec = CLUSTER_SETTINGS[name];
  return {
    object: "cluster_setting",
    name,
    value: record?.value ?? spec.default,
    version: record?.version ?? 0,
    ...spec,
    updated_at: record ? new Date(record.updatedAtMs).toISOString() : null,
  };
}
