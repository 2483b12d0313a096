/** Applies changes to environment variables by key (RFC 7396), and checks their limits. Pure. */
import { type Env, type EnvPatch, MAX_ENV, MAX_ENV_BYTES } from '@berth/wire/project';
import type { FieldProblem } from '../platform/errors.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Applies a change by key: `null` removes a variable, and all other variables stay. */
export function mergedEnv(present: Env, patch: EnvPatch): Env {
  const merged = new Map(Object.entries(present));
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) merged.delete(name);
    else merged.set(name, value);
  }
  return Object.fromEntries(merged);
}

/** Checks a name that is part of a URL path. */
export function envNameProblem(name: string): FieldProblem | null {
  if (!NAME.test(name))
    return {
      field: 'name',
      rule: 'env_name',
      message: 'must be letters, digits and “_”, and must not begin with a digit',
    };
  return name.length > 200
    ? { field: 'name', rule: 'max_length', message: 'must not have more than 200 characters' }
    : null;
}

/** Checks the limits of all variables together. */
export function envSizeProblems(env: Env): FieldProblem[] {
  const entries = Object.entries(env);
  const bytes = entries.reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  return [
    ...(entries.length > MAX_ENV
      ? [
          {
            field: 'env',
            rule: 'max_properties',
            message: `must not have more than ${MAX_ENV} entries; there would be ${entries.length}`,
          },
        ]
      : []),
    ...(bytes > MAX_ENV_BYTES
      ? [
          {
            field: 'env',
            rule: 'max_bytes',
            message:
              `must not hold more than ${MAX_ENV_BYTES} bytes (1 MiB); there would be ${bytes} ` +
              'bytes',
          },
        ]
      : []),
  ];
}
