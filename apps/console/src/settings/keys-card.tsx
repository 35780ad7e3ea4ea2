import type { ApiKey, KeySpec } from "@heddle/contracts/api/keys";
import { PERMISSIONS } from "@heddle/contracts/api/permission";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { CodeBlock } from "../ui/code-block.tsx";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { FormDialog, fieldText } from "../ui/form-dialog.tsx";
import { formatTime } from "../ui/format.ts";
import { PagedTable } from "../ui/paged-table.tsx";
import { Card } from "../ui/parts.tsx";
import { StatusBadge } from "../ui/status-badge.tsx";

const text = STRINGS.settings;
const DEFAULT_SCOPES = new Set(["inference:create", "models:read"]);

/** The API keys: create, rotate and revoke them. A key's text is shown once, and kept nowhere. */
export function KeysCard() {
  const { heddle } = useSession();
  const [created, setCreated] = useState<string>();
  return (
    <Card title={text.keys}>
      <CreateKey onCreated={setCreated} />
      {created !== undefined && (
        <div role="status">
          <p>{text.shownOnce}</p>
          <CodeBlock label={text.key} text={created} />
        </div>
      )}
      <PagedTable
        label={text.keys}
        head={[
          STRINGS.common.name,
          text.id,
          STRINGS.common.state,
          text.rights,
          text.expires,
          text.lastUsed,
          STRINGS.common.actions,
        ]}
        query="keys"
        list={(signal) => heddle.keys.list({ signal })}
        rowOf={(key) => ({
          key: key.id,
          cells: [
            key.name,
            <code key="id">{key.id}</code>,
            <StatusBadge key="status" state={key.status} />,
            key.role ?? key.scopes.join(", "),
            key.expires_at ? formatTime(key.expires_at) : STRINGS.common.never,
            key.last_used_at ? formatTime(key.last_used_at) : STRINGS.common.notYet,
            key.status === "active" && (
              <KeyActions key="actions" apiKey={key} onCreated={setCreated} />
            ),
          ],
        })}
      />
    </Card>
  );
}

interface CreateKeyOptions {
  readonly onCreated: (text: string) => void;
}

function CreateKey({ onCreated }: CreateKeyOptions) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const create = async (form: FormData) => {
    const days = Number(fieldText(form, "days") ?? 0);
    const spec: KeySpec = {
      name: fieldText(form, "name") ?? "",
      scopes: form.getAll("scopes").map(String) as NonNullable<KeySpec["scopes"]>,
      project: fieldText(form, "project"),
      ...(days > 0 ? { expires_at: new Date(Date.now() + days * 86_400_000).toISOString() } : {}),
    };
    onCreated((await heddle.keys.create(spec)).key);
    await queries.invalidateQueries({ queryKey: ["keys"] });
  };
  return (
    <FormDialog label={text.create} title={text.create} submit={text.createSubmit} act={create}>
      <label>
        {STRINGS.common.name}
        <input name="name" required maxLength={200} />
      </label>
      <label>
        {text.project}
        <input name="project" placeholder="default" />
      </label>
      <label>
        {text.days}
        <input name="days" type="number" min={0} placeholder="0" />
      </label>
      <fieldset>
        <legend>{text.permissions}</legend>
        {[...PERMISSIONS, "*"].map((scope) => (
          <label key={scope} className="check">
            <input
              type="checkbox"
              name="scopes"
              value={scope}
              defaultChecked={DEFAULT_SCOPES.has(scope)}
            />
            {scope}
          </label>
        ))}
      </fieldset>
    </FormDialog>
  );
}

interface KeyActionsOptions extends CreateKeyOptions {
  readonly apiKey: ApiKey;
}

function KeyActions({ apiKey: { id, name }, onCreated }: KeyActionsOptions) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const refresh = () => queries.invalidateQueries({ queryKey: ["keys"] });
  return (
    <div className="buttons">
      <ConfirmButton
        label={text.rotate}
        title={text.rotateTitle(name)}
        text={text.rotateText}
        confirm={text.rotateConfirm}
        act={async () => {
          onCreated((await heddle.keys.rotate(id)).key);
          await refresh();
        }}
      />
      <ConfirmButton
        label={text.revoke}
        title={text.revokeTitle(name)}
        text={text.revokeText}
        confirm={text.revokeConfirm}
        isDanger
        act={() => heddle.keys.revoke(id).then(refresh)}
      />
    </div>
  );
}
