/** Form fields. An error belongs to its field and names the rule. */
import {
  Checkbox as MantineCheckbox,
  MultiSelect,
  NativeSelect,
  NumberInput,
  PasswordInput,
  Switch as MantineSwitch,
  TagsInput,
  TextInput,
} from '@mantine/core';
import type { ReactNode } from 'react';

type Common = { label: string; help?: ReactNode; error?: string | null | undefined; required?: boolean; disabled?: boolean };
type Field<T> = Common & { value: T; onChange: (value: T) => void };

const common = ({ label, help, error, required, disabled }: Common) => ({
  label,
  ...(help === undefined ? {} : { description: help }),
  ...(error === null || error === undefined ? {} : { error }),
  ...(required === true ? { required } : {}),
  ...(disabled === true ? { disabled } : {}),
});

type TextFieldProps = Field<string> & {
  placeholder?: string;
  secret?: boolean;
  mono?: boolean;
  type?: 'text' | 'email' | 'search' | 'url' | 'datetime-local';
  autoComplete?: string;
  name?: string;
  autoFocus?: boolean;
};
export function TextField({
  value,
  onChange,
  placeholder,
  secret = false,
  mono = false,
  type = 'text',
  autoComplete = 'off',
  name,
  autoFocus,
  ...rest
}: TextFieldProps) {
  const Input = secret ? PasswordInput : TextInput;
  return (
    <Input
      {...common(rest)}
      {...(secret ? {} : { type })}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      autoComplete={autoComplete}
      {...(placeholder === undefined ? {} : { placeholder })}
      {...(name === undefined ? {} : { name })}
      {...(autoFocus === true ? { 'data-autofocus': true, autoFocus } : {})}
      {...(mono ? { styles: { input: { fontFamily: 'var(--mantine-font-family-monospace)' } } } : {})}
    />
  );
}

/** Empty text is null. */
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
  <NativeSelect {...common(rest)} value={value} onChange={(event) => onChange(event.currentTarget.value as T)} data={[...options]} />
);

export const ManySelect = ({
  value,
  onChange,
  options,
  ...rest
}: Field<string[]> & { options: readonly { value: string; label: string }[] }) => (
  <MultiSelect {...common(rest)} value={value} onChange={onChange} data={[...options]} searchable hidePickedOptions />
);

export const TagsField = ({ value, onChange, placeholder, ...rest }: Field<string[]> & { placeholder?: string }) => (
  <TagsInput {...common(rest)} value={value} onChange={onChange} {...(placeholder === undefined ? {} : { placeholder })} />
);

export const Switch = ({ value, onChange, ...rest }: Field<boolean>) => (
  <MantineSwitch {...common(rest)} checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
);
export const Checkbox = ({ value, onChange, ...rest }: Field<boolean>) => (
  <MantineCheckbox {...common(rest)} checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
);
