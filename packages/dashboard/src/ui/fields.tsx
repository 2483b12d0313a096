/**
 * Form fields. An error belongs to its field and names the rule. The text field has its own file
 * (text-field.tsx), because the first page needs it.
 */
import {
  Checkbox as MantineCheckbox,
  MultiSelect,
  NativeSelect,
  NumberInput,
  Switch as MantineSwitch,
  TagsInput,
  Textarea,
} from '@mantine/core';
import { common, type Field, invalid } from './text-field.tsx';

/** A number field; an empty field is null. */
export const NumberField = ({
  value,
  onChange,
  min,
  max,
  step,
  ...rest
}: Field<number | null> & { min?: number; max?: number; step?: number }) => (
  <NumberInput
    {...common(rest)}
    value={value ?? ''}
    onChange={(next) => onChange(next === '' ? null : Number(next))}
    {...(min === undefined ? {} : { min })}
    {...(max === undefined ? {} : { max })}
    {...(step === undefined ? {} : { step })}
    clampBehavior="none"
  />
);

type SelectProps<T extends string> = Field<T> & { options: readonly { value: T; label: string }[] };
export const Select = <T extends string>({ value, onChange, options, ...rest }: SelectProps<T>) => (
  <NativeSelect
    {...common(rest)}
    value={value}
    onChange={(event) => onChange(event.currentTarget.value as T)}
    data={[...options]}
  />
);

export const ManySelect = ({
  value,
  onChange,
  options,
  ...rest
}: Field<string[]> & { options: readonly { value: string; label: string }[] }) => (
  <MultiSelect
    {...common(rest)}
    value={value}
    onChange={onChange}
    data={[...options]}
    searchable
    hidePickedOptions
  />
);

export const TagsField = ({
  value,
  onChange,
  placeholder,
  ...rest
}: Field<string[]> & { placeholder?: string }) => (
  <TagsInput
    {...common(rest)}
    value={value}
    onChange={onChange}
    {...(placeholder === undefined ? {} : { placeholder })}
  />
);

export const Switch = ({ value, onChange, ...rest }: Field<boolean>) => (
  <MantineSwitch
    {...common(rest)}
    {...invalid(rest)}
    checked={value}
    onChange={(event) => onChange(event.currentTarget.checked)}
  />
);
export const Checkbox = ({ value, onChange, ...rest }: Field<boolean>) => (
  <MantineCheckbox
    {...common(rest)}
    {...invalid(rest)}
    checked={value}
    onChange={(event) => onChange(event.currentTarget.checked)}
  />
);

/** A field for text with several lines. */
export const TextArea = ({ value, onChange, ...rest }: Field<string>) => (
  <Textarea
    {...common(rest)}
    value={value}
    onChange={(event) => onChange(event.currentTarget.value)}
    autosize
    minRows={2}
    maxRows={12}
    autoComplete="off"
    spellCheck={false}
    styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }}
  />
);
