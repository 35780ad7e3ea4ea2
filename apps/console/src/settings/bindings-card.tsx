import type { Binding, BindingSpec } from "@heddle/contracts/api/access/bindings";
import { SUBJECT_KINDS } from "@heddle/contracts/roles";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { rolesQuery } from "../data/queries.ts";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { FormDialog, fieldText } from "../ui/form-dialog.tsx";
import { PagedTable } from "../ui/paged-table.tsx";
import { Card } from "../ui/parts.tsx";

const text = STRINGS.settings;

/** Which user, group or key has which role, and where. */
export function BindingsCard() {
  const { heddle } = useSession();
  return (
    <Card title={text.bindings}>
      <AddBinding />
      <PagedTable
        label={text.bindings}
        head={[STRINGS.common.kind, text.subject, text.role, text.where, STRINGS.common.actions]}
        query="bindings"
        list={(signal) => heddle.bindings.list({}, { signal })}
        rowOf={(binding) => ({
          key: binding.id,
          cells: [
            binding.kind,
            binding.subject,
            binding.role,
            binding.project ?? text.wholeCluster,
            <RemoveBinding key="remove" binding={binding} />,
          ],
        })}
      />
    </Card>
  );
}

function AddBinding() {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const { data } = useQuery(rolesQuery(heddle));
  const add = async (form: FormData) => {
    const binding = {
      kind: fieldText(form, "kind"),
      subject: fieldText(form, "subject"),
      role: fieldText(form, "role"),
      project: fieldText(form, "project"),
    } as BindingSpec;
    await heddle.bindings.add(binding);
    await queries.invalidateQueries({ queryKey: ["bindings"] });
  };
  return (
    <FormDialog label={text.addBinding} title={text.addBinding} submit={text.save} act={add}>
      <label>
        {STRINGS.common.kind}
        <select name="kind">
          {SUBJECT_KINDS.map((kind) => (
            <option key={kind}>{kind}</option>
          ))}
        </select>
      </label>
      <label>
        {text.subject}
        <input name="subject" required maxLength={200} />
      </label>
      <label>
        {text.role}
        <select name="role" required>
          {data?.data.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        {text.project}
        <input name="project" placeholder={text.wholeCluster} />
      </label>
    </FormDialog>
  );
}

function RemoveBinding({ binding }: { readonly binding: Binding }) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const { kind, subject, role, project } = binding;
  const remove = async () => {
    await heddle.bindings.remove({ kind, subject, role, ...(project !== null && { project }) });
    await queries.invalidateQueries({ queryKey: ["bindings"] });
  };
  return (
    <ConfirmButton
      label={text.removeBinding}
      title={text.removeBindingTitle(subject, role)}
      text={text.removeBindingText}
      confirm={text.removeBindingConfirm}
      isDanger
      act={remove}
    />
  );
}
