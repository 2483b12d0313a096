/** Renders the control of one project field, depending on the field's kind. */
import { defined } from '@berth/kit/defined';
import { parseRequires, requiresLines, type Requires } from '@berth/wire/machine';
import { useState } from 'react';
import {
  type FieldOfForm,
  fitsLines,
  isEqual,
  pairsOf,
  pairsText,
} from '../../parts/project-fields.ts';
import { looksSecret } from '../../parts/secret-name.ts';
import { Note } from '../../ui/feedback.tsx';
import { NumberField, Select, Switch, TagsField, TextArea } from '../../ui/fields.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Text } from '../../ui/text.tsx';

export type ControlProps = {
  field: FieldOfForm;
  value: unknown;
  onChange: (value: unknown) => void;
  error: string | undefined;
  help?: string | undefined;
  suggestions?: readonly string[];
  onFocus?: () => void;
  onBlur?: () => void;
};
export function Control({
  field,
  value,
  onChange,
  error,
  help = field.help,
  ...text
}: ControlProps) {
  const common = { label: field.label, error, ...defined({ help }) };
  switch (field.kind) {
    case 'switch':
      return <Switch {...common} value={value === true} onChange={onChange} />;
    case 'list':
      return <TagsField {...common} value={(value ?? []) as string[]} onChange={onChange} />;
    case 'choice':
      return (
        <Select
          {...common}
          value={typeof value === 'string' ? value : ''}
          onChange={(next) => onChange(next === '' ? null : next)}
          options={[...(field.nullable ? [''] : []), ...field.options].map((option) => ({
            value: option,
            label: option,
          }))}
        />
      );
    case 'pairs':
      return (
        <Pairs {...common} value={(value ?? {}) as Record<string, string>} onChange={onChange} />
      );
    case 'requires':
      return <Requirements {...common} value={(value ?? {}) as Requires} onChange={onChange} />;
    case 'number':
      return (
        <NumberField
          {...common}
          {...defined({ step: field.step })}
          value={shownNumber(field, value)}
          onChange={(next) => onChange(storedNumber(field, next))}
        />
      );
    default:
      return (
        <TextField
          {...common}
          {...text}
          mono
          value={typeof value === 'string' ? value : ''}
          onChange={(next) => onChange(next === '' && field.nullable ? null : next)}
        />
      );
  }
}

type RequirementsProps = {
  label: string;
  help?: string;
  error: string | undefined;
  value: Requires;
  onChange: (value: unknown) => void;
};
/** One tag for each requirement; a text of another form is refused when it is entered. */
function Requirements({ value, onChange, error, ...rest }: RequirementsProps) {
  const [bad, setBad] = useState<string | null>(null);
  return (
    <TagsField
      {...rest}
      error={bad === null ? error : `“${bad}” is no requirement`}
      value={requiresLines(value)}
      onChange={(lines) => {
        const parsed = parseRequires(lines);
        setBad('bad' in parsed ? parsed.bad : null);
        if (!('bad' in parsed)) onChange(parsed);
      }}
    />
  );
}

type NumberOfForm = Pick<FieldOfForm, 'scale' | 'nullable'>;

/**
 * Converts a number to the unit of the form: the form shows for example MiB, the project has bytes.
 */
function shownNumber({ scale }: NumberOfForm, value: unknown): number | null {
  if (typeof value !== 'number') return null;
  return scale === undefined ? value : Number((value / scale.by).toFixed(scale.max));
}

function storedNumber({ scale, nullable }: NumberOfForm, shown: number | null): number | null {
  if (shown === null) return nullable ? null : 0;
  return scale === undefined ? shown : Math.round(shown * scale.by);
}

type PairsProps = {
  label: string;
  help?: string;
  error: string | undefined;
  value: Record<string, string>;
  onChange: (value: unknown) => void;
};
/** A text area with one `NAME=value` per line. */
function Pairs({ value, onChange, ...rest }: PairsProps) {
  const [typed, setTyped] = useState(pairsText(value));
  // If the value no longer equals the typed text, the person accepted another value.
  const text = isEqual(pairsOf(typed), value) ? typed : pairsText(value);
  if (!fitsLines(value))
    return (
      <Text tone="quiet">
        {rest.label}: a value has several lines; change it with berth project edit --build-arg.
      </Text>
    );
  const secret = Object.entries(value).find(([name, one]) => looksSecret(name, one));
  return (
    <>
      <TextArea
        {...rest}
        value={text}
        onChange={(next) => {
          setTyped(next);
          onChange(pairsOf(next));
        }}
      />
      {secret !== undefined && (
        <Note tone="warn" live>
          {secret[0]} looks like a secret. Everybody who gets the image can read a build argument;
          set a secret for the build instead.
        </Note>
      )}
    </>
  );
}
