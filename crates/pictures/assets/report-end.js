// ---- The beginning.
for (const section of DATA.sections) {
  section.figures.forEach((figure, number) => { const place = byId(`${section.id}-figure-${number}`); if (place) makeFigure(place, figure, section.id); });
  makeNetwork(section);
  makeTree(section);
  const plan = byId(`${section.id}-plan`);
  if (plan) plan.before(element("div", { class: "controls needs-js" }, button("Save", "Plan as TOML", () => save(section.id + ".toml", "text/plain", plan.textContent))));
}
document.querySelectorAll("table[data-table]").forEach(makeTable);
byId("theme").addEventListener("change", (event) => { setState("theme", event.target.value === "auto" ? null : event.target.value); applyTheme(); });
systemDark.addEventListener("change", applyTheme);
byId("permalink").addEventListener("click", async () => {
  const said = byId("permalink-said");
  try { await navigator.clipboard.writeText(location.href); said.textContent = "copied"; }
  catch { said.textContent = "the address of the page has it"; }
});
addEventListener("hashchange", () => { if (location.hash !== ownHash) { restoreAll(); applyTheme(); } });
restoreAll();
applyTheme();
document.documentElement.dataset.ready = "true";
