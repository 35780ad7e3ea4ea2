import { useQueryClient } from "@tanstack/react-query";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { FormDialog, fieldNumber, fieldText } from "../ui/form-dialog.tsx";

const text = STRINGS.models;

/** Registers a model, of which workers then load the replicas. */
export function LoadModel() {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const load = async (form: FormData) => {
    const gpuCount = fieldNumber(form, "gpu_count") ?? 0;
    await heddle.models.register({
      id: fieldText(form, "id") ?? "",
      source: fieldText(form, "source"),
      replicas: fieldNumber(form, "replicas") ?? 1,
      ...(gpuCount > 0 ? { resources: { gpu_count: gpuCount } } : {}),
    });
    await queries.invalidateQueries({ queryKey: ["models"] });
  };
  return (
    <FormDialog label={text.load} title={text.load} submit={text.loadSubmit} act={load} isPrimary>
      <label>
        {text.id}
        <input name="id" required />
      </label>
      <label>
        {text.source}
        <input name="source" required placeholder="hf://OWNER/REPOSITORY/FILE.gguf" />
      </label>
      <p className="muted">{text.sourceHint}</p>
      <label>
        {text.wanted}
        <input name="replicas" type="number" min={0} defaultValue={1} />
      </label>
      <label>
        {text.gpuCount}
        <input name="gpu_count" type="number" min={0} defaultValue={0} />
      </label>
    </FormDialog>
  );
}
