import type { Model } from "@heddle/contracts/api/models";
import { useQueryClient } from "@tanstack/react-query";
import { useSession } from "../session/session.ts";
import { STRINGS } from "../strings.ts";
import { ConfirmButton } from "../ui/confirm-button.tsx";
import { FormDialog, fieldNumber } from "../ui/form-dialog.tsx";

const text = STRINGS.models;

/** Sets how many replicas a model has; none unloads it. */
export function ScaleModel({
  model: { id, wanted_replicas, replicas },
}: {
  readonly model: Model;
}) {
  const { heddle } = useSession();
  const queries = useQueryClient();
  const scale = async (count: number) => {
    await heddle.models.scale(id, { replicas: count });
    await queries.invalidateQueries({ queryKey: ["models"] });
  };
  const present = typeof wanted_replicas === "number" ? wanted_replicas : replicas.length;
  return (
    <>
      <FormDialog
        label={present === 0 ? text.loadAgain : text.scale}
        title={text.scaleTitle(id)}
        submit={text.scaleSubmit}
        act={(form) => scale(fieldNumber(form, "replicas") ?? 0)}
      >
        <label>
          {text.wanted}
          <input name="replicas" type="number" min={0} required defaultValue={present || 1} />
        </label>
      </FormDialog>
      {present > 0 && (
        <ConfirmButton
          label={text.unload}
          title={text.unloadTitle(id)}
          text={text.unloadText}
          confirm={text.unloadConfirm}
          act={() => scale(0)}
        />
      )}
    </>
  );
}
