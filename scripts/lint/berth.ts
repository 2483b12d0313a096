/**
 * Lint rules of this repository, for what oxlint has no rule of its own (.oxlintrc.json,
 * `jsPlugins`). test/gates.slow.test.ts plants a breach of each rule.
 */

/**
 * The parts of ESLint's API that the rules use
 * (https://eslint.org/docs/latest/extend/custom-rules).
 */
type Node = { type: string };
type ImportDeclaration = Node & {
  source: { value: string };
  importKind?: string;
  specifiers: (Node & { imported?: { name?: string }; importKind?: string })[];
};
type Comment = Node & { value: string; range: [number, number] };
type Context = {
  report(problem: { node: Node; message: string }): void;
  sourceCode: { text: string; getAllComments(): Comment[] };
};

const FILE_SYSTEM = /^node:fs(\/promises)?$/;
const WRITES = /^(writeFile|writeFileSync|open|openSync)$/;
const RENAMES = /^(rename|renameSync)$/;

/**
 * A file that writes and renames probably writes a temporary file and gives it the final name. Each
 * such copy forgets something: the flush of the file, the flush of the folder, the removal of the
 * temporary file.
 */
const writeFileWhole = {
  create(context: Context) {
    let writes = false;
    let renames: Node | null = null;
    return {
      ImportDeclaration(node: ImportDeclaration) {
        if (!FILE_SYSTEM.test(node.source.value) || node.importKind === 'type') return;
        for (const specifier of node.specifiers) {
          const name = specifier.imported?.name ?? '';
          if (WRITES.test(name)) writes = true;
          if (RENAMES.test(name)) renames ??= specifier;
        }
      },
      'Program:exit'() {
        if (writes && renames !== null)
          context.report({
            node: renames,
            message:
              'Write files whole with @berth/kit/write-file: writeFileWhole, or replaceFile ' +
              'for a file that is finished already.',
          });
      },
    };
  },
};

type Call = Node & { callee: Node & { property?: Node & { name?: string }; object?: Node } };
const TRIMS = /^trim(Start|End|Left|Right)?$/;
const HEADER_TEXT = /header|cookie|authorization|^origin$|^accept$|^pair$/i;

/**
 * Returns the names in an expression that functions are called on:
 * `request.headers['x'].split(',')` has request, headers and split.
 */
function namesIn(value: unknown, found: string[] = []): string[] {
  if (Array.isArray(value)) for (const one of value) namesIn(one, found);
  else if (typeof value === 'object' && value !== null) {
    for (const [key, inner] of Object.entries(value)) {
      if (key === 'parent') continue;
      if ((key === 'name' || key === 'value') && typeof inner === 'string') found.push(inner);
      else namesIn(inner, found);
    }
  }
  return found;
}

/**
 * `String.trim()` also removes U+00A0 and others, which browsers and other programs take as a part
 * of a name or value.
 */
const trims = (isHeaderText: (object: Node) => boolean) => ({
  create(context: Context) {
    return {
      CallExpression(node: Call) {
        const { property, object } = node.callee;
        if (
          object !== undefined &&
          property !== undefined &&
          TRIMS.test(property.name ?? '') &&
          isHeaderText(object)
        )
          context.report({
            node: property,
            message:
              'Trim the text of a header with @berth/kit/ows: trim() also removes U+00A0 and ' +
              'others.',
          });
      },
    };
  },
});
const trimOws = trims((object) => namesIn(object).some((name) => HEADER_TEXT.test(name)));
/**
 * For the folders that read the headers of strangers: there a helper can get the text under any
 * name.
 */
const noTrim = trims(() => true);

/** The first of two doc comments in a row belongs to a declaration that moved away from it. */
const oneDocComment = {
  create(context: Context) {
    return {
      'Program:exit'() {
        const docs = context.sourceCode
          .getAllComments()
          .filter((comment) => comment.type === 'Block' && comment.value.startsWith('*'));
        for (const [i, comment] of docs.entries()) {
          const next = docs[i + 1];
          // The first comment of a file describes the file.
          if (next === undefined || comment.range[0] === 0) continue;
          if (context.sourceCode.text.slice(comment.range[1], next.range[0]).trim() === '')
            context.report({
              node: comment,
              message: 'Two doc comments in a row: move this one to its declaration, or join them.',
            });
        }
      },
    };
  },
};

type Spread = Node & { argument: Node & { consequent?: Fields; alternate?: Fields } };
type Fields = Node & { properties?: unknown[] };
const isEmptyObject = (node: Fields | undefined): boolean =>
  node?.type === 'ObjectExpression' && node.properties?.length === 0;

/** `...(a === undefined ? {} : { a })` is `...defined({ a })`. */
const noConditionalSpread = {
  create(context: Context) {
    return {
      SpreadElement(node: Spread) {
        const { type, consequent, alternate } = node.argument;
        if (type !== 'ConditionalExpression') return;
        if (isEmptyObject(consequent) || isEmptyObject(alternate))
          context.report({
            node,
            message: 'Use defined({ … }) of @berth/kit/defined: it leaves out undefined fields.',
          });
      },
    };
  },
};

const NAMELESS = /^(found|known|given|left)$/;
type Declarator = Node & { id: Node & { name?: string } };

/** A name that says only how a value came here finds everything in a search. */
const searchableName = {
  create(context: Context) {
    return {
      VariableDeclarator(node: Declarator) {
        if (node.id.type === 'Identifier' && NAMELESS.test(node.id.name ?? ''))
          context.report({
            node: node.id,
            message: `“${node.id.name}” finds everything in a search: say what it is.`,
          });
      },
    };
  },
};

const CIPHER = /^create(Cipher|Decipher)iv$/;

/** Each further copy of the cipher would choose its own nonce, tag length and order of parts. */
const cipherInSeal = {
  create(context: Context) {
    return {
      Identifier(node: Node & { name: string }) {
        if (CIPHER.test(node.name))
          context.report({ node, message: 'Encrypt with @berth/kit/seal: seal and unseal.' });
      },
    };
  },
};

// oxlint loads a plugin from its default export.
// oxlint-disable-next-line import/no-default-export
export default {
  meta: { name: 'berth' },
  rules: {
    'trim-ows': trimOws,
    'no-trim': noTrim,
    'write-file-whole': writeFileWhole,
    'one-doc-comment': oneDocComment,
    'no-conditional-spread': noConditionalSpread,
    'searchable-name': searchableName,
    'cipher-in-seal': cipherInSeal,
  },
};
