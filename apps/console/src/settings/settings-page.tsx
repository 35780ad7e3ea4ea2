import type { Setting } from "@heddle/contracts/api/settings";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { rolesQuery } from "../data/queries.ts";
import { useMay, useSelf, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { FormDialog, fieldNumber } from "../ui/form-dialog.tsx";
import { formatCount } from "../ui/format.ts";
import { Card, Facts, PageHead, PlainTable, Waiting } from "../ui/parts.tsx";
import { BindingsCard } from "./bindings-card.tsx";
import { KeysCard } from "./keys-card.tsx";
import { PluginsCard } from "./plugins-card.tsx";
import { SecretsCard } from "./secrets-card.tsx";

const text = STRINGS.settings;

/** The caller, API keys, users, roles, secrets, plugins, and the cluster's settings. */
export function SettingsPage() {
  const self = useSelf();
  const mayRead = useMay("cluster:read");
  const mayChange = useMay("cluster:admin");
  const mayReadSecrets = useMay("secrets:read");
  return (
    <div className="page">
      <PageHead title={STRINGS.pages.settings} />
      <Card title={text.self}>
        <Facts
          rows={[
            [STRINGS.common.name, self.name],
            [text.id, self.id],
            [text.project, self.project],
            [text.permissions, self.permissions.join(", ")],
          ]}
        />
      </Card>
      {mayChange && <KeysCard />}
      {mayChange && <BindingsCard />}
      {mayRead && <RolesCard />}
      {mayReadSecrets && <SecretsCard />}
      {mayRead && <PluginsCard />}
      {mayRead && <SettingsCard mayChange={mayChange} />}
    </div>
  );
}

function RolesCard() {
  const { heddle } = useSession();
  const { data, error } = useQuery(rolesQuery(heddle));
  return (
    <Card title={text.roles}>
      {data ? (
        <PlainTable
          label={text.roles}
          head={[STRINGS.common.name, text.permissions, text.description]}
          rows={data.data.map(({ name, permissions, description }) => ({
            key: name,
            cells: [name, permissions.join(", "), description],
          }))}
        />
      ) : (
        <Waiting error={error} />
      )}
    </Card>
  );
}

function SettingsCard({ mayChange }: { readonly mayChange: boolean }) {
  const { heddle } = useSession();
  const { data, error } = useQuery({
    queryKey: ["settings"],
    queryFn: ({ signal }) => heddle.settings.list({ signal }),
  });
  return (
    <Card title={text.cluster}>
      {data ? (
        <PlainTable
          label={text.cluster}
          head={[STRINGS.common.name, text.value, text.description, STRINGS.common.actions]}
          rows={data.map((setting) => ({
            key: setting.name,
            cells: [
              setting.name,
              `${formatCount(setting.value)} ${setting.unit}`,
              setting.description,
              mayChange && <ChangeSetting key="change" setting={setting} />,
            ],
          }))}
        />
      ) : (
        <Waiting error={error} />
      )}
    </Card>
  );
}

function ChangeSetting({ setting: { name, value, minimum, maximum } }: ChangeSettingOptions) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  return (
    <FormDialog
      label={text.change}
      title={text.changeTitle(name)}
      submit={text.save}
      act={async (form) => {
        await heddle.settings.set(name, fieldNumber(form, "value") ?? value);
        await queries.invalidateQueries({ queryKey: ["settings"] });
      }}
    >
      <label>
        {text.value}
        <input
          name="value"
          type="number"
          step="any"
          min={minimum}
          max={maximum}
          required
          defaultValue={value}
        />
      </label>
    </FormDialog>
  );
}

interface ChangeSettingOptions {
  readonly setting: Setting;
}
