/**
 * Lint rules of this repository, for what oxlint has no rule of its own (.oxlintrc.json, `jsPlugins`). test/gates.test.ts plants a breach
 * of each rule.
 */

/** The parts of ESLint's API that the rules use (https://eslint.org/docs/latest/extend/custom-rules). */
type Node = { type: string };
type ImportDeclaration = Node & {
  source: { value: string };
  importKind?: string;
  specifiers: (Node & { imported?: { name?: string }; importKind?: string })[];
};
type Context = { report(problem: { node: Node; message: string }): void };

const FILE_SYSTEM = /^node:fs(\/promises)?$/;
const WRITES = /^(writeFile|writeFileSync|open|openSync)$/;
const RENAMES = /^(rename|renameSync)$/;

/**
 * A file that writes and renames probably writes a temporary file and gives it the final name. Each such copy forgets something: the flush
 * of the file, the flush of the folder, the removal of the temporary file.
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
            message: 'Write files whole with @berth/kit/write-file: writeFileWhole, or replaceFile for a file that is finished already.',
          });
      },
    };
  },
};

// oxlint loads a plugin from its default export.
// oxlint-disable-next-line import/no-default-export
export default { meta: { name: 'berth' }, rules: { 'write-file-whole': writeFileWhole } };
