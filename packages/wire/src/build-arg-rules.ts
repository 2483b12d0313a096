/** Rules for build arguments. Pure. */
import { type BuildArgs, MAX_BUILD_ARG_BYTES, MAX_BUILD_ARGS } from './project.ts';
import type { BrokenRule } from './field-rules.ts';

/**
 * Names that BuildKit interprets itself. BUILDKIT_SYNTAX would choose a frontend that the builder
 * does not allow, and BUILDKIT_CACHE_MOUNT_NS would open the cache mounts of another project.
 */
const OF_BUILDKIT = /^BUILDKIT_/i;
/**
 * Names that Berth reserves. Builders of older versions pass build secrets in variables with such
 * names, and an argument with the same name would reveal the secret.
 */
const OF_BERTH = /^BERTH_/i;

const bytesOf = (text: string): number => new TextEncoder().encode(text).byteLength;

export function buildArgProblems(args: BuildArgs): BrokenRule[] {
  const entries = Object.entries(args);
  const bytes = entries.reduce((sum, [name, value]) => sum + bytesOf(name) + bytesOf(value), 0);
  const problem = (rule: string, message: string, field = 'build_args'): BrokenRule => ({
    field,
    rule,
    message,
  });
  return [
    ...entries.flatMap(([name, value]) => {
      const field = `build_args.${name.slice(0, 40)}`;
      if (name.length > 200)
        return [problem('max_length', 'the name must not be longer than 200 characters', field)];
      if (OF_BUILDKIT.test(name))
        return [
          problem(
            'reserved',
            'names that begin with BUILDKIT_ configure the builder itself',
            field,
          ),
        ];
      if (OF_BERTH.test(name))
        return [
          problem('reserved', 'names that begin with BERTH_ are kept for Berth itself', field),
        ];
      return /\0/.test(value) ? [problem('no_nul', 'must not contain a NUL character', field)] : [];
    }),
    ...(entries.length > MAX_BUILD_ARGS
      ? [
          problem(
            'max_properties',
            `must not have more than ${MAX_BUILD_ARGS} entries; there would be ${entries.length}`,
          ),
        ]
      : []),
    ...(bytes > MAX_BUILD_ARG_BYTES
      ? [
          problem(
            'max_bytes',
            `must not hold more than ${MAX_BUILD_ARG_BYTES} bytes (128 KiB); there would be ` +
              `${bytes} bytes`,
          ),
        ]
      : []),
  ];
}
