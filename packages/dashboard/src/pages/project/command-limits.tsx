/** The fields for memory and CPUs of a command: a job, or a run of a person. */
import { MIB } from '../../parts/field-words.ts';
import { NumberField } from '../../ui/fields.tsx';

/** Memory in bytes and number of CPUs; null: the limit of the project. */
export type CommandLimits = { memory_bytes: number | null; cpus: number | null };
export const NO_LIMITS: CommandLimits = { memory_bytes: null, cpus: null };

type CommandLimitFieldsProps = {
  limits: CommandLimits;
  onChange: (limits: CommandLimits) => void;
  errors: Readonly<Record<string, string>>;
};
export const CommandLimitFields = ({ limits, onChange, errors }: CommandLimitFieldsProps) => (
  <>
    <NumberField
      label="Memory (MiB)"
      help="empty: the limit of the project"
      value={limits.memory_bytes === null ? null : limits.memory_bytes / MIB}
      onChange={(mib) =>
        onChange({ ...limits, memory_bytes: mib === null ? null : Math.round(mib * MIB) })
      }
      min={6}
      error={errors['memory_bytes']}
    />
    <NumberField
      label="CPUs"
      help="empty: the limit of the project"
      value={limits.cpus}
      onChange={(cpus) => onChange({ ...limits, cpus })}
      min={0.01}
      step={0.5}
      error={errors['cpus']}
    />
  </>
);
