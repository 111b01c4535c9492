CodeSystem: ModelProperty
Id: model-property
Title: "Properties of a model or engine"
Description: "What a property of a DeviceDefinition of this registry states."
* ^caseSensitive = true
* ^experimental = false
* #inputProfile "Input" "One input of the model: name, type and shape."
* #outputProfile "Output" "One output of the model: name, type and shape."
* #outputConfidence "Confidence" "Name of the output that states confidence: the second one. Absent where a model has one output."
* #arithmetic "Arithmetic" "The named arithmetic that defines every result down to the bit."
* #equivalence "Equivalence" "Verdict and grade of the comparison of the engine with an independent reference."
* #target "Target" "The platform that an engine was compiled for."
* #fingerprintGrade "Grade of the fingerprint" "How far the hardware fingerprint of a machine is trusted: asserted, since its administrator can change it."
* #withdrawn "Withdrawn" "Day and reason of a withdrawal."
* #nonconformity "Nonconformity" "Id and finding of a failed recertification that was not resolved."

ValueSet: ModelPropertyCodes
Id: model-property
Title: "Properties of a model or engine"
Description: "All codes of the code system of the same name."
* ^experimental = false
* include codes from system $property

CodeSystem: VersionKind
Id: version-kind
Title: "Kinds of version"
Description: "What a version of a DeviceDefinition or Device of this registry counts: the three parts of the version triple."
* ^caseSensitive = true
* ^experimental = false
* #model-version "Model version" "Name and version of the model."
* #compile-config "Compile configuration" "SHA3-512 of everything the compiler was told."
* #hardware-fingerprint "Hardware fingerprint" "SHA3-512 over serial number and network addresses of the machine."

ValueSet: VersionKindCodes
Id: version-kind
Title: "Kinds of version"
Description: "All codes of the code system of the same name."
* ^experimental = false
* include codes from system $version

CodeSystem: EvidenceDocument
Id: evidence-document
Title: "Kinds of evidence"
Description: "What a file of a release is."
* ^caseSensitive = true
* ^experimental = false
* #release "Release statement" "The signed statement that names every file of the release."
* #proof "Build proof" "The signed record of every stage of the build."
* #policy "Clinical policy" "What the manufacturer demands of the engine."
* #equivalence "Equivalence" "Comparison with the independent reference."
* #coverage "Coverage" "Structural coverage of the clinical logic."
* #decisions "Decisions" "Clinical decisions on a test set, and their performance."
* #reproducibility "Reproducibility" "Rebuilds, bit for bit."
* #sbom "Bill of materials" "Components, their versions, licences and suppliers, with the model card."
* #intoto "in-toto statements" "Statements for tools of software supply chains."
* #dataset "Data sets" "Report on the data sets."
* #page "Proof as a page" "The proof as a page for people."
* #deployment "Deployment statement" "What a machine signed of the engine deployed on it."
* #nonconformity "Nonconformity record" "What a failed recertification found, signed."
* #bundle "Whole release" "All files of the release in one."

ValueSet: EvidenceDocumentCodes
Id: evidence-document
Title: "Kinds of evidence"
Description: "All codes of the code system of the same name."
* ^experimental = false
* include codes from system $document
