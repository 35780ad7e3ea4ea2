import { useQueryClient } from "@tanstack/react-query";
import { useMay, useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { FormDialog, fieldText } from "../ui/form-dialog.tsx";
import { formatCount, formatTime } from "../ui/format.ts";
import { PagedTable } from "../ui/paged-table.tsx";
import { Card } from "../ui/parts.tsx";

const text = STRINGS.settings;

/** The secrets of the caller's project. No page shows a value. */
export function SecretsCard() {
  const { heddle } = useSession();
  const mayChange = useMay("secrets:write");
  return (
    <Card title={text.secrets}>
      {mayChange && <SetSecret />}
      <PagedTable
        label={text.secrets}
        head={[
          STRINGS.common.name,
          text.project,
          text.version,
          text.updated,
          STRINGS.common.actions,
        ]}
        query="secrets"
        list={(signal) => heddle.secrets.list({ signal })}
        rowOf={({ id, name, project, version, updated_at }) => ({
          key: id,
          cells: [
            name,
            project,
            formatCount(version),
            formatTime(updated_at),
            mayChange && (
              <div key="actions" className="buttons">
                <SetSecret name={name} />
                <RemoveSecret name={name} />
              </div>
            ),
          ],
        })}
      />
    </Card>
  );
}

/** Sets the value of an existing secret, or of a new one. */
function SetSecret({ name }: { readonly name?: string }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const set = async (form: FormData) => {
    await heddle.secrets.set(name ?? fieldText(form, "name") ?? "", String(form.get("value")));
    await queries.invalidateQueries({ queryKey: ["secrets"] });
  };
  const isNew = name === undefined;
  return (
    <FormDialog
      label={isNew ? text.addSecret : text.change}
      title={isNew ? text.addSecret : text.changeTitle(name)}
      submit={text.save}
      act={set}
    >
      {isNew && (
        <label>
          {STRINGS.common.name}
          <input name="name" required maxLength={63} />
        </label>
      )}
      <label>
        {text.secretValue}
        <textarea name="value" rows={3} required autoComplete="off" spellCheck={false} />
      </label>
    </FormDialog>
  );
}

function RemoveSecret({ name }: { readonly name: string }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  return (
    <ConfirmButton
      label={text.removeSecret}
      title={text.removeSecretTitle(name)}
      text={text.removeSecretText}
      confirm={text.removeSecretConfirm}
      isDanger
      act={async () => {
        await heddle.secrets.remove(name);
        await queries.invalidateQueries({ queryKey: ["secrets"] });
      }}
    />
  );
}
