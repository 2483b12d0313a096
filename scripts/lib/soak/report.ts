/** Lines and violations that npm run soak prints. */

export const violations: string[] = [];
const started = performance.now();
export const printLine = (text: string): void =>
  console.log(`${((performance.now() - started) / 1000).toFixed(0).padStart(5)} s  ${text}`);
export function violated(what: string): void {
  violations.push(what);
  printLine(`VIOLATION ${what}`);
}
export const mb = (bytes: number): string => `${Math.round(bytes / 1e6)} MB`;
