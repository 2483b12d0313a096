/**
 * The text field, and the properties that all form fields share. The first page loads this file but
 * not the larger fields.
 */
import { defined } from '@berth/kit/defined';
import { PasswordInput, TextInput } from '@mantine/core';
import { type ReactNode, useId } from 'react';

type Common = {
  label: string;
  help?: ReactNode;
  error?: string | null | undefined;
  required?: boolean;
  disabled?: boolean;
};
export type Field<T> = Common & { value: T; onChange: (value: T) => void };

/** Returns the properties that all fields share. */
export const common = ({ label, help, error, required, disabled }: Common) => ({
  label,
  ...defined({
    description: help,
    error: error === null || error === undefined ? undefined : error,
    required: required === true ? required : undefined,
    disabled: disabled === true ? disabled : undefined,
  }),
});

/**
 * Returns `aria-invalid` for a field with an error, because the UI library sets it only for fields
 * of readable text.
 */
export const invalid = ({ error }: Pick<Field<unknown>, 'error'>) =>
  error === null || error === undefined ? {} : { 'aria-invalid': true as const };

type TextFieldProps = Field<string> & {
  placeholder?: string;
  secret?: boolean;
  mono?: boolean;
  type?: 'text' | 'email' | 'search' | 'url' | 'datetime-local';
  autoComplete?: string;
  name?: string;
  autoFocus?: boolean;
  /** Suggested values; any other text is possible too. */
  suggestions?: readonly string[];
  onFocus?: () => void;
  onBlur?: () => void;
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
  suggestions = [],
  onFocus,
  onBlur,
  ...rest
}: TextFieldProps) {
  const listId = useId();
  const Input = secret ? PasswordInput : TextInput;
  // Always render a fragment: an input that moves to another parent loses the focus.
  return (
    <>
      <Input
        {...common(rest)}
        {...(secret ? invalid(rest) : { type })}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
        autoComplete={autoComplete}
        {...(placeholder === undefined ? {} : { placeholder })}
        {...(name === undefined ? {} : { name })}
        {...(onFocus === undefined ? {} : { onFocus })}
        {...(onBlur === undefined ? {} : { onBlur })}
        {...(suggestions.length === 0 ? {} : { list: listId })}
        {...(autoFocus === true ? { 'data-autofocus': true, autoFocus } : {})}
        {...(mono
          ? { styles: { input: { fontFamily: 'var(--mantine-font-family-monospace)' } } }
          : {})}
      />
      {suggestions.length > 0 && (
        <datalist id={listId}>
          {suggestions.map((text) => (
            <option key={text} value={text} />
          ))}
        </datalist>
      )}
    </>
  );
}
