import {
  CLUSTER_SETTINGS,
  type Setting,
  type SettingName,
  type SettingSpec,
} from "@heddle/contracts/api/settings";
import type { SettingRecord } from "@heddle/control/state";

export function viewSetting(name: SettingName, record: SettingRecord | undefined): Setting {
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
