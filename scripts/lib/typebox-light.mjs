// Stands in for typebox in the bundle of the command line. It makes the same JSON Schemas for the
// functions that packages/wire uses; the real library takes longer to load than the rest of the
// program. packages/cli/test/bundle.test.ts compares both for every route.
const optional = new WeakSet();

const object = (properties, options = {}) => {
  const required = Object.keys(properties).filter((key) => !optional.has(properties[key]));
  return { type: 'object', ...(required.length > 0 ? { required } : {}), properties, ...options };
};

export const Type = {
  Array: (items, options = {}) => ({ type: 'array', items, ...options }),
  Boolean: (options = {}) => ({ type: 'boolean', ...options }),
  Integer: (options = {}) => ({ type: 'integer', ...options }),
  Literal: (value, options = {}) => ({ type: typeof value, const: value, ...options }),
  Null: (options = {}) => ({ type: 'null', ...options }),
  Number: (options = {}) => ({ type: 'number', ...options }),
  Object: object,
  Optional(schema) {
    const copy = { ...schema };
    optional.add(copy);
    return copy;
  },
  Partial: (schema, options = {}) =>
    object(
      Object.fromEntries(
        Object.entries(schema.properties).map(([key, value]) => [key, Type.Optional(value)]),
      ),
      options,
    ),
  Record: (key, value, options = {}) => ({
    type: 'object',
    patternProperties: { [key.pattern ?? '^.*$']: value },
    ...options,
  }),
  String: (options = {}) => ({ type: 'string', ...options }),
  Union: (anyOf, options = {}) => ({ anyOf, ...options }),
  Unsafe: (schema) => ({ ...schema }),
};

/** The command line checks no values by schema: the control plane does. */
export const Value = {
  Check() {
    throw new Error('the bundle of the command line has no validator');
  },
};
