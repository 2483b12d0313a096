/**
 * Texts for the errors of a JSON Schema. ajv and typebox give keyword, parameters and place in the
 * same form, so requests and berth.toml use the same words.
 */

export type RuleText = { rule: string; message: string };
/** A rule that a field breaks. */
export type BrokenRule = RuleText & { field: string };

const PATTERNS: Record<string, RuleText> = {
  '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$': {
    rule: 'dns_label',
    message:
      'must be a DNS label: lower-case letters, digits and dashes, beginning and ending with a ' +
      'letter or digit',
  },
  '^([0-9a-f]{40}|[0-9a-f]{64})$': {
    rule: 'commit_id',
    message: 'must be a full commit id: 40 (or 64) lower-case hexadecimal digits',
  },
  '^sha256:[0-9a-f]{64}$': {
    rule: 'digest',
    message: 'must be “sha256:” and 64 lower-case hexadecimal digits',
  },
  '^[A-Za-z0-9_-]+$': { rule: 'id', message: 'is not an id: letters, digits, “_” and “-” only' },
  '^[^@\\s]+@[^@\\s]+$': { rule: 'email', message: 'must be an e-mail address' },
  '^/[!-~]*$': { rule: 'path', message: 'must begin with “/” and contain no spaces' },
  '^/': { rule: 'absolute', message: 'must begin with “/”' },
};

const FORMATS: Record<string, string> = {
  'date-time': 'must be a time in RFC 3339 format, such as 2026-01-31T12:00:00Z',
};

const TYPES: Record<string, string> = {
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
  null: 'null',
};
const typeNames = (type: unknown): string =>
  (Array.isArray(type) ? type : [type]).map((t) => TYPES[String(t)] ?? String(t)).join(' or ');

/** The error of a name in a map of variables. */
export const VARIABLE_NAME: RuleText = {
  rule: 'env_name',
  message:
    'is not a valid name of a variable: use letters, digits and “_”, and do not begin with a digit',
};

type SchemaError = { keyword: string; params: unknown; message?: string | undefined };

/** Returns the rule that a value breaks, as a code and as a sentence without its subject. */
export function ruleText(error: SchemaError): RuleText {
  const params = error.params as Record<string, unknown>;
  const limit = String(params['limit']);
  switch (error.keyword) {
    case 'type':
      return { rule: 'type', message: `must be ${typeNames(params['type'])}` };
    case 'enum':
      return {
        rule: 'enum',
        message: `must be one of ${(params['allowedValues'] as unknown[]).join(', ')}`,
      };
    case 'pattern': {
      const pattern = String(params['pattern']);
      return PATTERNS[pattern] ?? { rule: 'pattern', message: `must match ${pattern}` };
    }
    case 'format': {
      const format = String(params['format']);
      return { rule: format, message: FORMATS[format] ?? `must have the format ${format}` };
    }
    case 'minLength':
      return {
        rule: 'min_length',
        message:
          params['limit'] === 1 ? 'must not be empty' : `must have at least ${limit} characters`,
      };
    case 'maxLength':
      return { rule: 'max_length', message: `must not have more than ${limit} characters` };
    case 'minimum':
      return { rule: 'minimum', message: `must be at least ${limit}` };
    case 'maximum':
      return { rule: 'maximum', message: `must be at most ${limit}` };
    case 'minProperties':
      return { rule: 'min_properties', message: 'must name at least one field' };
    case 'maxProperties':
      return { rule: 'max_properties', message: `must not have more than ${limit} entries` };
    case 'minItems':
      return { rule: 'min_items', message: `must have at least ${limit} entries` };
    case 'maxItems':
      return { rule: 'max_items', message: `must not have more than ${limit} entries` };
    default:
      return { rule: error.keyword, message: error.message ?? 'is not valid' };
  }
}

/** Returns the parts of a JSON pointer (RFC 6901). */
export const pointerParts = (pointer: string): string[] =>
  pointer
    .split('/')
    .slice(1)
    .map((s) => s.replaceAll('~1', '/').replaceAll('~0', '~'));

/** Returns a field name: `datasets`, `0`, `mount_path` -> `datasets[0].mount_path`. */
export const fieldName = (parts: readonly string[]): string =>
  parts.reduce((name, s) => {
    if (/^\d+$/.test(s)) return `${name}[${s}]`;
    return name === '' ? s : `${name}.${s}`;
  }, '');
